#pragma once

#include <memory>

#include "models/decoder/attention_layer.h"
#include "nn/causal_conv_layer.h"
#include "nn/gated_norm.h"

namespace automodel::models::decoder {

/// A gated delta net, which replaces attention (Qwen 3 Next, Qwen 3.5, Kimi Linear). Parameters in
/// this order: dt_bias, A_log, in_proj (rows as in GatedDeltaOptions), conv1d (channels: queries,
/// keys, values), with a decay for each row of a state step_proj and gate_proj, norm, out_proj.
class GatedDeltaNet final : public AttentionLayer {
 public:
  GatedDeltaNet(const DecoderConfig& config, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const override;
  /// Ignored: it has no attention core.
  void set_core(std::shared_ptr<nn::AttentionCore>) override {}

 private:
  /// The parts of in_proj's result.
  struct Projected {
    at::Tensor qkv;   ///< [B, S, channels of the convolution]
    at::Tensor gate;  ///< [B, S, N, E]
    at::Tensor beta;  ///< [B, S, N], before its sigmoid
    at::Tensor step;  ///< [B, S, N] or [B, S, N, D], before bias and softplus
  };
  Projected split(const at::Tensor& projected) const;
  Projected split_grouped(const at::Tensor& projected) const;
  Projected split_narrow(const at::Tensor& projected) const;
  at::Tensor decay(const at::Tensor& step) const;

  GatedDeltaOptions sizes_;
  kernels::Activation activation_;
  at::Tensor dt_bias_;
  at::Tensor a_log_;
  std::shared_ptr<nn::Linear> in_proj_;
  std::shared_ptr<nn::CausalConv> conv_;
  std::shared_ptr<nn::Linear> step_proj_;  // this and the next one only with decays of rows
  std::shared_ptr<nn::Linear> gate_proj_;
  std::shared_ptr<nn::GatedNorm> norm_;
  std::shared_ptr<nn::Linear> out_proj_;
};

}  // namespace automodel::models::decoder
