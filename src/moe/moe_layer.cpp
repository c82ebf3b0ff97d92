#include "moe/moe_layer.h"

#include <ATen/ATen.h>

#include "kernels/base/pointwise.h"

namespace automodel::moe {

MoELayer::MoELayer(const MoEConfig& config, const std::string& name, at::ScalarType dtype)
    : dispatcher_(nn::make_local_token_dispatcher()) {
  router_ = register_module("router", std::make_shared<Router>(config, name, dtype));
  const auto add_projection = [&](const char* module, int64_t in, int64_t out) {
    if (config.moe_latent_size == 0) return std::shared_ptr<nn::Linear>();
    return register_module(module, std::make_shared<nn::Linear>(nn::LinearOptions{in, out}, dtype));
  };
  fc1_latent_proj_ = add_projection("fc1_latent_proj", config.dim, config.expert_dim());
  experts_ = register_module("experts", std::make_shared<Experts>(config, dtype));
  fc2_latent_proj_ = add_projection("fc2_latent_proj", config.expert_dim(), config.dim);
  if (config.n_shared_experts == 0) return;
  shared_experts_ = register_module(
      "shared_experts",
      std::make_shared<nn::Mlp>(nn::MlpOptions{.dim = config.dim,
                                               .inner_dim = config.shared_inner_dim(),
                                               .activation = config.shared_expert_activation,
                                               .is_gated = config.is_gated(),
                                               .has_bias = config.shared_expert_bias,
                                               .gate_bounds = config.shared_gate_bounds},
                                dtype));
  if (config.shared_expert_gate) {
    shared_expert_gate_ =
        register_module("shared_expert_gate",
                        std::make_shared<nn::Linear>(nn::LinearOptions{config.dim, 1}, dtype));
  }
}

at::Tensor MoELayer::shared(const at::Tensor& x) const {
  const at::Tensor out = shared_experts_->forward(x);
  return shared_expert_gate_ ? out * kernels::sigmoid(shared_expert_gate_->forward(x)) : out;
}

at::Tensor MoELayer::forward(const at::Tensor& x, const at::Tensor& padding_mask,
                             const at::Tensor& token_ids) const {
  const at::Tensor tokens = x.reshape({-1, x.size(-1)});
  const auto flat = [](const at::Tensor& of_tokens) {
    return of_tokens.defined() ? of_tokens.reshape({-1}) : at::Tensor();
  };
  const Routing routing = router_->forward(tokens, flat(padding_mask), flat(token_ids));
  const nn::DispatchedTokens dispatched =
      dispatcher_->dispatch(fc1_latent_proj_ ? fc1_latent_proj_->forward(tokens) : tokens,
                            routing.expert_ids, routing.weights);
  const at::Tensor combined = dispatcher_->combine(experts_->forward(dispatched), dispatched);
  const at::Tensor out =
      (fc2_latent_proj_ ? fc2_latent_proj_->forward(combined) : combined).view(x.sizes());
  if (!shared_experts_) return out;
  const at::Tensor sum = out + shared(x);
  return experts_->config().is_shared_averaged ? sum * 0.5 : sum;
}

}  // namespace automodel::moe
