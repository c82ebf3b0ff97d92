#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "models/decoder/decoder_config.h"
#include "models/decoder/forward_context.h"
#include "nn/layers.h"

namespace automodel::models::decoder {

/// The indexer of sparse attention (DeepSeek-V3.2, GLM-5): chooses the keys that each query of a
/// layer sees. Parameters in this order: q_proj (from the queries' latent), k_proj, k_norm,
/// weights_proj. A choice has no gradient, so none of them is trained.
class Indexer final : public torch::nn::Module {
 public:
  Indexer(const DecoderConfig& config, int rope, at::ScalarType dtype);

  /// x [B, S, D], the layer's normed input, and latent [B, S, R], the normed narrow projection of
  /// its queries: to kernels::choose_keys.
  at::Tensor choose(const at::Tensor& x, const at::Tensor& latent,
                    const ForwardContext& context) const;

 private:
  at::Tensor rotated(const at::Tensor& x, const ForwardContext& context) const;

  IndexerOptions options_;
  int rope_;
  int64_t rotated_dim_;
  std::shared_ptr<nn::Linear> q_proj_;
  std::shared_ptr<nn::Linear> k_proj_;
  std::shared_ptr<nn::LayerNorm> k_norm_;
  std::shared_ptr<nn::Linear> weights_proj_;
};

}  // namespace automodel::models::decoder
