#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "kernels/expert_mlp.h"
#include "moe/moe_config.h"
#include "nn/product_dtype.h"
#include "nn/token_dispatcher.h"
#include "nn/unit_hook.h"

namespace automodel::moe {

/// The routed experts of a layer, or those of them that this rank holds, as one tensor a matrix.
/// Parameters: gate_up_proj [E, 2 I, D] (rows of gate, then of up; up_proj [E, I, D] without a
/// gate), gate_up_proj_bias [E, 2 I], down_proj [E, D, I], down_proj_bias [E, D]; matrices are
/// [E, in, out] and gate and up alternate where the family stores them so (GPT-OSS). A unit of its
/// own for sharding when it is asked for.
class Experts final : public torch::nn::Module,
                      public nn::HookedModule,
                      public nn::MultiplyingModule {
 public:
  Experts(const MoEConfig& config, at::ScalarType dtype);

  /// The weighted sum of the chosen experts [M, D] for each token.
  at::Tensor forward(const nn::DispatchedTokens& tokens) const;

  nn::UnitHook& unit_hook() override { return hook_; }
  nn::ProductDtype& product_dtype() override { return product_dtype_; }

 private:
  kernels::ExpertOptions options_;
  nn::UnitHook hook_;
  kernels::ExpertWeights weights_;
  nn::ProductDtype product_dtype_;
};

}  // namespace automodel::moe
