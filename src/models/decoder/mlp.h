#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "models/decoder/decoder_config.h"
#include "nn/layers.h"

namespace automodel::models::decoder {

/// down(act(gate(x)) * up(x)) with gate and up as the rows of gate_up_proj, or down(act(up(x))).
class Mlp final : public torch::nn::Module {
 public:
  Mlp(const DecoderConfig& config, at::ScalarType dtype);

  /// x [B, S, D] to [B, S, D].
  at::Tensor forward(const at::Tensor& x) const;

 private:
  kernels::Activation activation_;
  bool is_gated_;
  std::shared_ptr<nn::Linear> up_proj_;  ///< "gate_up_proj" when gated
  std::shared_ptr<nn::Linear> down_proj_;
};

}  // namespace automodel::models::decoder
