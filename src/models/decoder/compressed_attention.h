#pragma once

#include <memory>
#include <utility>

#include "kernels/attention/two_part_attention.h"
#include "models/decoder/attention_layer.h"
#include "models/decoder/compressed_indexer.h"
#include "models/decoder/compressor.h"
#include "nn/grouped_linear.h"

namespace automodel::models::decoder {

/// The attention of DeepSeek V4: to the tokens in a window and, in layers with a compression, to
/// keys that are made of windows of tokens before. A token's key is its value too, so the heads'
/// results are rotated back. Parameters in this order: sinks (float32), q_a_proj, q_a_norm,
/// q_b_proj, kv_proj, kv_norm, o_a_proj (of each group of heads), o_b_proj, compressor, indexer.
class CompressedAttention final : public AttentionLayer {
 public:
  CompressedAttention(const DecoderConfig& config, int64_t layer, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const override;
  void set_core(std::shared_ptr<nn::AttentionCore> core) override { core_ = std::move(core); }

 private:
  at::Tensor attend_in_window(const at::Tensor& q, const at::Tensor& kv,
                              const ForwardContext& context) const;
  at::Tensor attend_with_windows(const at::Tensor& q, const at::Tensor& kv,
                                 const kernels::AttentionPart& compressed,
                                 const ForwardContext& context) const;

  LayerOptions layer_;
  int64_t num_heads_;
  int64_t head_dim_;
  double norm_eps_;
  at::Tensor sinks_;
  std::shared_ptr<nn::Linear> q_a_proj_;
  std::shared_ptr<nn::RmsNorm> q_a_norm_;
  std::shared_ptr<nn::Linear> q_b_proj_;
  std::shared_ptr<nn::Linear> kv_proj_;
  std::shared_ptr<nn::RmsNorm> kv_norm_;
  std::shared_ptr<nn::GroupedLinear> o_a_proj_;
  std::shared_ptr<nn::Linear> o_b_proj_;
  std::shared_ptr<Compressor> compressor_;      // null without a compression
  std::shared_ptr<CompressedIndexer> indexer_;  // of Compression::kSparse alone
  std::shared_ptr<nn::AttentionCore> core_;
};

}  // namespace automodel::models::decoder
