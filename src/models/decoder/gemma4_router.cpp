#include "models/decoder/gemma4_router.h"

#include <ATen/ATen.h>

#include <cmath>

#include "kernels/layers/norm.h"
#include "kernels/products/linear.h"
#include "tensor/dtype.h"
#include "tensor/shard_spec.h"

namespace automodel::models::decoder {

Gemma4Router::Gemma4Router(const moe::MoEConfig& config, double norm_eps, std::string name,
                           at::ScalarType dtype)
    : CountingRouter(config, std::move(name)), norm_eps_(norm_eps) {
  scale_ = register_parameter("scale", tensor::placeholder({config.dim}, dtype));
  per_expert_scale_ =
      register_parameter("per_expert_scale", tensor::placeholder({config.n_routed_experts}, dtype));
  proj_ = register_module(
      "proj",
      std::make_shared<nn::Linear>(nn::LinearOptions{config.dim, config.n_routed_experts}, dtype));
}

void Gemma4Router::freeze() {
  for (at::Tensor& parameter : parameters()) parameter.set_requires_grad(false);
}

moe::Routing Gemma4Router::forward(const at::Tensor& x, const at::Tensor& is_padding) {
  const at::ScalarType wide = tensor::wide_dtype(x.scalar_type());
  const double scale = 1.0 / std::sqrt(static_cast<double>(config().dim));
  const at::Tensor normed = kernels::rms_norm(x.to(wide), scale_.to(wide), {.eps = norm_eps_});
  const nn::ProductDtype& narrowed = proj_->product_dtype();
  const at::Tensor scores =
      kernels::linear(narrowed.of(normed * scale), narrowed.of(proj_->weight().to(wide)), {})
          .to(wide)
          .softmax(-1);
  check_finite(scores, "scores");
  moe::Routing routing;
  if (config().fake_balanced_gate) {
    routing = balanced_routing(scores);
  } else {
    const auto [best, ids] = scores.topk(config().n_activated_experts, -1);
    const at::Tensor weights = best / best.sum(-1, true).clamp_min(1e-20);
    const at::Tensor expert_scales = per_expert_scale_.to(wide).index_select(0, ids.flatten());
    routing = {ids, weights * expert_scales.view_as(ids)};
  }
  return counted(
      std::move(routing), [&] { return scores; }, is_padding, x.scalar_type());
}

}  // namespace automodel::models::decoder
