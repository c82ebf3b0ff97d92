#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "models/decoder/gemma4_router.h"
#include "moe/experts.h"
#include "nn/token_dispatcher.h"

namespace automodel::models::decoder {

/// Experts beside an MLP, whose router reads another state than they do (Gemma 4). Modules: router,
/// experts.
class SideExperts final : public torch::nn::Module, public nn::SplitsExperts {
 public:
  /// `norm_eps` is of the router's norm; `name` appears in errors: "layer 3".
  SideExperts(const moe::MoEConfig& config, double norm_eps, std::string name,
              at::ScalarType dtype);

  /// The experts' result for x [B, S, D]; the router chooses them by `residual` [B, S, D]. In
  /// training, tokens at `padding_mask` [B, S] (undefined: none) choose no expert.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual,
                     const at::Tensor& padding_mask) const;

  /// Stops training the router. Call it before memory is allocated.
  void freeze_router() { router_->freeze(); }

  int64_t num_experts() const override { return num_experts_; }
  void set_token_dispatcher(std::shared_ptr<nn::TokenDispatcher> dispatcher) override {
    dispatcher_ = std::move(dispatcher);
  }

 private:
  int64_t num_experts_;
  std::shared_ptr<Gemma4Router> router_;
  std::shared_ptr<moe::Experts> experts_;
  std::shared_ptr<nn::TokenDispatcher> dispatcher_;
};

}  // namespace automodel::models::decoder
