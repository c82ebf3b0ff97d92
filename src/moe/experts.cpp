#include "moe/experts.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "tensor/shard_spec.h"

namespace automodel::moe {

namespace {

kernels::ExpertOptions kernel_options(const MoEConfig& config) {
  kernels::ExpertOptions options;
  options.is_gated = config.is_gated();
  options.is_transposed = config.are_experts_transposed;
  options.alpha = config.activation_alpha;
  options.limit = config.activation_limit;
  options.bounds = config.gate_bounds;
  switch (config.expert_activation) {
    case ExpertActivation::kSwiglu:
      options.activation = kernels::Activation::kSilu;
      break;
    case ExpertActivation::kSwigluOai:
      options.is_clamped = true;
      break;
    case ExpertActivation::kGeglu:
      options.activation = kernels::Activation::kGeluTanh;
      break;
    case ExpertActivation::kRelu2:
      options.activation = kernels::Activation::kReluSquared;
      break;
  }
  return options;
}

/// The sums over each token's experts, of which each reads the token x [M, D] times its weight
/// [M, j].
at::Tensor of_weighted_inputs(const at::Tensor& x, const at::Tensor& ids, const at::Tensor& weights,
                              const kernels::ExpertWeights& experts,
                              const kernels::ExpertOptions& options) {
  const at::Tensor rows =
      (x.unsqueeze(1) * weights.to(x.scalar_type()).unsqueeze(-1)).flatten(0, 1);
  const at::Tensor own = ids.reshape({-1, 1});
  const at::Tensor out =
      kernels::expert_mlp(rows, own, at::ones_like(own, weights.options()), experts, options);
  return out.unflatten(0, ids.sizes()).sum(1);
}

}  // namespace

Experts::Experts(const MoEConfig& config, at::ScalarType dtype)
    : config_(config), options_(kernel_options(config)) {
  const auto add = [&](const std::string& name, std::vector<int64_t> sizes) {
    sizes.insert(sizes.begin(), config.n_routed_experts);
    return register_parameter(name, tensor::placeholder(sizes, dtype));
  };
  const bool is_apart = config.are_gates_apart;
  const std::string up = config.is_gated() && !is_apart ? "gate_up_proj" : "up_proj";
  const int64_t width = is_apart ? config.moe_inter_dim : config.expert_width();
  const bool is_transposed = config.are_experts_transposed;
  const auto matrix = [&](int64_t out, int64_t in) {
    return is_transposed ? std::vector<int64_t>{in, out} : std::vector<int64_t>{out, in};
  };
  if (is_apart) weights_.gate = add("gate_proj", matrix(width, config.expert_dim()));
  weights_.up = add(up, matrix(width, config.expert_dim()));
  if (config.expert_bias) weights_.up_bias = add(up + "_bias", {width});
  weights_.down = add("down_proj", matrix(config.expert_dim(), config.moe_inter_dim));
  if (config.expert_bias) weights_.down_bias = add("down_proj_bias", {config.expert_dim()});
}

void Experts::add_lora(const ExpertLoraOptions& options) {
  AM_CHECK(!weights_.lora.is_there(), "adapters are added once");
  const auto add = [&](const char* name, int64_t rows, int64_t columns) {
    return register_parameter(
        name, tensor::placeholder({config_.n_routed_experts, rows, columns}, options.dtype));
  };
  weights_.lora.up_a = add("lora_gate_and_up_A", options.rank, config_.expert_dim());
  weights_.lora.up_b = add("lora_gate_and_up_B", config_.expert_width(), options.rank);
  weights_.lora.down_a = add("lora_down_A", options.rank, config_.moe_inter_dim);
  weights_.lora.down_b = add("lora_down_B", config_.expert_dim(), options.rank);
  weights_.lora.scale = options.scale;
}

at::Tensor Experts::forward(const nn::DispatchedTokens& tokens) const {
  const at::Tensor ids = tokens.expert_ids;
  return hook_({tokens.tokens, tokens.weights}, [this, ids](const nn::TensorList& in) {
    const nn::ProductDtype& narrowed = product_dtype_;
    kernels::ExpertWeights weights{narrowed.of(weights_.up), narrowed.of(weights_.up_bias),
                                   narrowed.of(weights_.down), narrowed.of(weights_.down_bias)};
    weights.gate = narrowed.of(weights_.gate);
    if (weights_.lora.is_there()) weights.lora = adapters(weights.up.scalar_type());
    const at::Tensor x = narrowed.of(in[0]);
    return nn::TensorList{config_.are_inputs_weighted
                              ? of_weighted_inputs(x, ids, in[1], weights, options_)
                              : kernels::expert_mlp(x, ids, in[1], weights, options_)};
  })[0];
}

kernels::ExpertLora Experts::adapters(at::ScalarType dtype) const {
  const auto of = [&](const at::Tensor& factor) { return factor.to(dtype); };
  const kernels::ExpertLora& own = weights_.lora;
  return {of(own.up_a), of(own.up_b), of(own.down_a), of(own.down_b), own.scale};
}

}  // namespace automodel::moe
