#pragma once

#include <memory>

#include "models/decoder/attention_layer.h"
#include "nn/causal_conv_layer.h"
#include "nn/gated_norm.h"

namespace automodel::models::decoder {

/// A Mamba-2 layer, which replaces attention (Nemotron-H) or is beside it (Falcon-H1). Parameters
/// in this order: dt_bias, A_log, D, in_proj (rows: gate, x, b, c, step), conv1d (channels: x, b,
/// c), norm, out_proj.
class Mamba2 final : public AttentionLayer {
 public:
  Mamba2(const DecoderConfig& config, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const override;
  /// Ignored: it has no attention core.
  void set_core(std::shared_ptr<nn::AttentionCore>) override {}

 private:
  at::Tensor project(const at::Tensor& x) const;
  at::Tensor gated(const at::Tensor& out, const at::Tensor& gate) const;

  Mamba2Options sizes_;
  at::Tensor dt_bias_;
  at::Tensor a_log_;
  at::Tensor d_;
  std::shared_ptr<nn::Linear> in_proj_;
  std::shared_ptr<nn::CausalConv> conv_;
  std::shared_ptr<nn::GatedNorm> norm_;  // may be null
  std::shared_ptr<nn::Linear> out_proj_;
};

}  // namespace automodel::models::decoder
