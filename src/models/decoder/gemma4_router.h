#pragma once

#include <memory>
#include <string>

#include "moe/counting_router.h"
#include "nn/layers.h"

namespace automodel::models::decoder {

/// Gemma 4's choice of experts, all in float32: softmax of a projection of the normed and scaled
/// hidden state, the best experts, their weights divided by their sum and multiplied by a scale per
/// expert. Parameters: scale [D], per_expert_scale [E], proj.weight [E, D]; not trained when the
/// router is frozen.
class Gemma4Router final : public moe::CountingRouter {
 public:
  /// `name` appears in errors: "layer 3".
  Gemma4Router(const moe::MoEConfig& config, double norm_eps, std::string name,
               at::ScalarType dtype);

  /// x [T, D]; is_padding [T] bool or undefined: in training these tokens choose no expert and are
  /// not counted. On the CPU, scores that are not finite throw UserError with the exit code of
  /// non-finite losses.
  moe::Routing forward(const at::Tensor& x, const at::Tensor& is_padding);

  /// Stops training its parameters. Call it before memory is allocated.
  void freeze();

 private:
  double norm_eps_;
  at::Tensor scale_;
  at::Tensor per_expert_scale_;
  std::shared_ptr<nn::Linear> proj_;
};

}  // namespace automodel::models::decoder
