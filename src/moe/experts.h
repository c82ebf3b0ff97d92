#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "kernels/products/expert_mlp.h"
#include "moe/moe_config.h"
#include "nn/product_dtype.h"
#include "nn/token_dispatcher.h"
#include "nn/unit_hook.h"

namespace automodel::moe {

/// Low-rank adapters of all experts of a layer.
struct ExpertLoraOptions {
  int64_t rank = 8;
  double scale = 1;
  at::ScalarType dtype = at::kFloat;
};

/// The routed experts of a layer (or those on this rank), one tensor per matrix. Parameters:
/// gate_up_proj [E, 2 I, D] (rows of gate, then of up; up_proj [E, I, D] without a gate;
/// gate_proj and up_proj [E, I, D] where a family's files have them apart), gate_up_proj_bias
/// [E, 2 I], down_proj [E, D, I], down_proj_bias [E, D]. If the family stores them so (GPT-OSS),
/// matrices are [E, in, out] and gate and up alternate. Sharding may make it a unit.
class Experts final : public torch::nn::Module,
                      public nn::HookedModule,
                      public nn::MultiplyingModule {
 public:
  Experts(const MoEConfig& config, at::ScalarType dtype);

  /// The sum of the chosen experts [M, D] for each token, of weighted results or weighted inputs.
  at::Tensor forward(const nn::DispatchedTokens& tokens) const;

  /// Adds adapters to both products of every expert: parameters lora_gate_and_up_A [E, r, D],
  /// lora_gate_and_up_B [E, 2 I, r], lora_down_A [E, r, I] and lora_down_B [E, D, r] (upstream's,
  /// transposed). Call it once, before memory is allocated; the weights must be frozen.
  void add_lora(const ExpertLoraOptions& options);

  const MoEConfig& config() const { return config_; }
  nn::UnitHook& unit_hook() override { return hook_; }
  nn::ProductDtype& product_dtype() override { return product_dtype_; }

 private:
  /// The adapters, cast to the dtype of products; they may be stored in a wider one.
  kernels::ExpertLora adapters(at::ScalarType dtype) const;

  MoEConfig config_;
  kernels::ExpertOptions options_;
  nn::UnitHook hook_;
  kernels::ExpertWeights weights_;
  nn::ProductDtype product_dtype_;
};

}  // namespace automodel::moe
