#pragma once

#include <memory>

#include "models/decoder/attention_layer.h"
#include "nn/causal_conv_layer.h"

namespace automodel::models::decoder {

/// A short convolution between two gates, which replaces attention (LFM2). Parameters in this
/// order: in_proj (rows as in ShortConvOptions), conv1d, out_proj.
class ShortConv final : public AttentionLayer {
 public:
  ShortConv(const DecoderConfig& config, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const override;
  /// Ignored: it has no attention core.
  void set_core(std::shared_ptr<nn::AttentionCore>) override {}

 private:
  std::shared_ptr<nn::Linear> in_proj_;
  std::shared_ptr<nn::CausalConv> conv_;
  std::shared_ptr<nn::Linear> out_proj_;
};

}  // namespace automodel::models::decoder
