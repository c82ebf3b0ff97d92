#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "models/decoder/compressor.h"
#include "models/decoder/decoder_config.h"
#include "models/decoder/forward_context.h"
#include "nn/layers.h"

namespace automodel::models::decoder {

/// Chooses the compressed keys that each query of a layer of Compression::kSparse sees, by keys of
/// its own that are made of the same windows. Modules in this order: compressor, q_b_proj (from the
/// queries' narrow projection), weights_proj. A choice has no gradient, so none of them is trained.
class CompressedIndexer final : public torch::nn::Module {
 public:
  CompressedIndexer(const DecoderConfig& config, int rope, at::ScalarType dtype);

  /// x [B, S, D], the layer's normed input, and latent [B, S, R], the normed narrow projection of
  /// its queries: the windows' numbers, as of kernels::choose_keys; undefined where all are chosen.
  at::Tensor choose(const at::Tensor& x, const at::Tensor& latent,
                    const ForwardContext& context) const;

 private:
  IndexerOptions options_;
  int rope_;
  std::shared_ptr<Compressor> compressor_;
  std::shared_ptr<nn::Linear> q_b_proj_;
  std::shared_ptr<nn::Linear> weights_proj_;
};

}  // namespace automodel::models::decoder
