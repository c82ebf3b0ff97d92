#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "moe/router.h"
#include "nn/layers.h"

namespace automodel::models::decoder {

/// Gemma 4's choice of experts, all in float32: softmax of a projection of the normed and scaled
/// hidden state, the best experts, their weights divided by their sum and multiplied by a scale per
/// expert. Parameters: scale [D], per_expert_scale [E], proj.weight [E, D]; not trained when the
/// router is frozen.
class Gemma4Router final : public torch::nn::Module {
 public:
  /// `name` appears in errors: "layer 3".
  Gemma4Router(const moe::MoEConfig& config, double norm_eps, std::string name,
               at::ScalarType dtype);

  /// x [T, D]; is_padding [T] bool or undefined: in training these tokens choose no expert. On the
  /// CPU, scores that are not finite throw UserError with the exit code of non-finite losses.
  moe::Routing forward(const at::Tensor& x, const at::Tensor& is_padding) const;

  /// Stops training its parameters. Call it before memory is allocated.
  void freeze();

 private:
  moe::MoEConfig config_;
  double norm_eps_;
  std::string name_;
  at::Tensor scale_;
  at::Tensor per_expert_scale_;
  std::shared_ptr<nn::Linear> proj_;
};

}  // namespace automodel::models::decoder
