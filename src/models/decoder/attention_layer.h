#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/decoder/decoder_config.h"
#include "models/decoder/forward_context.h"
#include "nn/attention_core.h"
#include "nn/layers.h"
#include "nn/tensor_parallel.h"

namespace automodel::models::decoder {

/// q [B, S, N, H] multiplied by the scale of its positions; q itself if the table has none.
at::Tensor scaled_queries(const at::Tensor& q, const kernels::RopeTable& rope,
                          const at::Tensor& position_ids);

/// Keys and values [B, S, K, H] that several layers see.
struct SharedKeys {
  at::Tensor k;
  at::Tensor v;
};

/// The attention of a block.
class AttentionLayer : public torch::nn::Module {
 public:
  /// x [B, S, D] to [B, S, D].
  virtual at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const = 0;
  /// x [B, S, D] to [B, S, D] in a layer that shares keys and values with others: it sees those of
  /// `shared`, or sets `shared` to its own. Only attention that may share them has it.
  virtual at::Tensor forward_shared(const at::Tensor& x, const ForwardContext& context,
                                    SharedKeys& shared) const;
  virtual void set_core(std::shared_ptr<nn::AttentionCore> core) = 0;
};

/// Self-attention. Parameters in this order: sinks, qkv_proj (rows: queries, keys, values unless
/// they are the keys, gates of heads; queries alone where another layer's keys are seen), q_norm,
/// k_norm, o_proj.
class Attention final : public AttentionLayer, public nn::SplitsHeads {
 public:
  Attention(const DecoderConfig& config, int64_t layer, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const override;
  at::Tensor forward_shared(const at::Tensor& x, const ForwardContext& context,
                            SharedKeys& shared) const override;

  void keep_heads(int part, int num_parts) override;

  void set_core(std::shared_ptr<nn::AttentionCore> core) override { core_ = std::move(core); }

 private:
  void add_qk_norms(const DecoderConfig& config, at::ScalarType dtype);
  kernels::Qkv heads(const at::Tensor& projected, const ForwardContext& context) const;
  kernels::Qkv heads_with_other_values(const at::Tensor& qkv,
                                       const kernels::QkvOptions& options) const;
  kernels::Qkv heads_normed_last(const at::Tensor& qkv, const kernels::QkvOptions& options) const;
  kernels::Qkv heads_normed_whole(const at::Tensor& qkv, const kernels::QkvOptions& options) const;
  at::Tensor projection(const at::Tensor& x) const;
  at::Tensor clipped(const at::Tensor& x) const;
  at::Tensor head_layer_normed(const at::Tensor& qkv) const;
  std::pair<at::Tensor, at::Tensor> split_gate(const at::Tensor& projected) const;
  at::Tensor gated(const at::Tensor& heads_out, const at::Tensor& gate) const;

  LayerOptions layer_;
  std::string dropout_site_;
  double dropout_;
  bool is_causal_;
  double softcap_;
  QkNorm qk_norm_;
  bool is_qk_norm_last_;
  bool is_qkv_by_group_;
  double qkv_clip_;
  bool is_rope_interleaved_;
  bool has_gate_;
  bool has_head_gates_;
  bool are_head_gates_wide_;
  bool is_head_gate_softplus_;
  bool has_other_values_;
  bool has_value_norm_;
  int64_t value_dim_;
  double value_scale_;
  kernels::QkvOptions options_;          // for the heads that are computed here
  std::vector<double> distance_slopes_;  // of all heads, or empty
  int64_t num_all_heads_;
  int64_t first_head_ = 0;
  at::Tensor sinks_;
  std::shared_ptr<nn::Linear> qkv_proj_;
  std::shared_ptr<nn::RmsNorm> q_norm_;
  std::shared_ptr<nn::RmsNorm> k_norm_;
  std::shared_ptr<nn::LayerNorm> q_layer_norm_;  // registered as q_norm, as is the next
  std::shared_ptr<nn::HeadsLayerNorm> q_heads_norm_;
  std::shared_ptr<nn::LayerNorm> k_layer_norm_;
  std::shared_ptr<nn::HeadsLayerNorm> k_heads_norm_;
  std::shared_ptr<nn::Linear> o_proj_;
  std::shared_ptr<nn::AttentionCore> core_;
};

}  // namespace automodel::models::decoder
