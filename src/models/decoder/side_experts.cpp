#include "models/decoder/side_experts.h"

#include <ATen/core/Tensor.h>

#include <utility>

namespace automodel::models::decoder {

SideExperts::SideExperts(const moe::MoEConfig& config, double norm_eps, std::string name,
                         at::ScalarType dtype)
    : num_experts_(config.n_routed_experts), dispatcher_(nn::make_local_token_dispatcher()) {
  router_ = register_module(
      "router", std::make_shared<Gemma4Router>(config, norm_eps, std::move(name), dtype));
  experts_ = register_module("experts", std::make_shared<moe::Experts>(config, dtype));
}

at::Tensor SideExperts::forward(const at::Tensor& x, const at::Tensor& residual,
                                const at::Tensor& padding_mask) const {
  const at::Tensor is_padding = padding_mask.defined() ? padding_mask.reshape({-1}) : at::Tensor();
  const moe::Routing routing =
      router_->forward(residual.reshape({-1, residual.size(-1)}), is_padding);
  const nn::DispatchedTokens dispatched =
      dispatcher_->dispatch(x.reshape({-1, x.size(-1)}), routing.expert_ids, routing.weights);
  return dispatcher_->combine(experts_->forward(dispatched), dispatched).view(x.sizes());
}

}  // namespace automodel::models::decoder
