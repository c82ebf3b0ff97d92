#pragma once

#include <memory>
#include <string>

#include "models/decoder/attention_layer.h"
#include "models/decoder/indexer.h"

namespace automodel::models::decoder {

/// Multi-head latent attention (DeepSeek-V2, V3). Parameters in this order: q_proj, or q_a_proj,
/// q_a_norm and q_b_proj; kv_a_proj (rows: the latent, the shared rotated key), kv_a_norm,
/// kv_b_proj (of each head: plain key, value), o_proj, and the indexer of a layer that chooses its
/// keys. Keys and values are expanded for all heads.
class LatentAttention final : public AttentionLayer {
 public:
  LatentAttention(const DecoderConfig& config, int64_t layer, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const override;
  void set_core(std::shared_ptr<nn::AttentionCore> core) override { core_ = std::move(core); }

 private:
  at::Tensor chosen_keys(const at::Tensor& x, const at::Tensor& latent,
                         const ForwardContext& context) const;
  at::Tensor rotated(const at::Tensor& x, const ForwardContext& context) const;
  at::Tensor queries(const at::Tensor& q, const ForwardContext& context) const;

  LatentAttentionOptions sizes_;
  LayerOptions layer_;
  int64_t number_;  // of this layer
  int64_t num_heads_;
  std::string dropout_site_;
  double dropout_;                      // of probabilities, in training
  std::shared_ptr<nn::Linear> q_proj_;  // from x, or from the queries' latent ("q_b_proj")
  std::shared_ptr<nn::Linear> q_a_proj_;
  std::shared_ptr<nn::RmsNorm> q_a_norm_;
  std::shared_ptr<nn::Linear> kv_a_proj_;
  std::shared_ptr<nn::RmsNorm> kv_a_norm_;
  std::shared_ptr<nn::Linear> kv_b_proj_;
  std::shared_ptr<nn::Linear> o_proj_;
  std::shared_ptr<Indexer> indexer_;  // null: the layer sees all keys, or another one's choice
  std::shared_ptr<nn::AttentionCore> core_;
};

}  // namespace automodel::models::decoder
