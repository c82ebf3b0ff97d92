#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "moe/experts.h"
#include "moe/router.h"
#include "nn/mlp.h"

namespace automodel::moe {

/// A mixture of experts in place of an MLP. Modules, as far as the config has them: router,
/// fc1_latent_proj [L, D], experts, fc2_latent_proj [D, L], shared_experts, shared_expert_gate
/// [1, D]. With latent projections routed experts and their exchange are L wide.
class MoELayer final : public torch::nn::Module, public nn::SplitsExperts {
 public:
  /// `name` appears in errors: "layer 3".
  MoELayer(const MoEConfig& config, const std::string& name, at::ScalarType dtype);

  /// x [B, S, D]; padding_mask [B, S] bool, true where a token is padding (in training it
  /// gets the shared experts only), or undefined; token_ids [B, S], which only a router reads that
  /// chooses by them. Returns [B, S, D].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& padding_mask,
                     const at::Tensor& token_ids = {}) const;

  int64_t num_experts() const override { return router_->config().n_routed_experts; }
  void set_token_dispatcher(std::shared_ptr<nn::TokenDispatcher> dispatcher) override {
    dispatcher_ = std::move(dispatcher);
  }

  Router& router() const { return *router_; }

 private:
  at::Tensor shared(const at::Tensor& x) const;

  std::shared_ptr<Router> router_;
  std::shared_ptr<nn::Linear> fc1_latent_proj_;
  std::shared_ptr<Experts> experts_;
  std::shared_ptr<nn::Linear> fc2_latent_proj_;
  std::shared_ptr<nn::Mlp> shared_experts_;
  std::shared_ptr<nn::Linear> shared_expert_gate_;
  std::shared_ptr<nn::TokenDispatcher> dispatcher_;
};

}  // namespace automodel::moe
