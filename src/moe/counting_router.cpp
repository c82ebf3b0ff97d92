#include "moe/counting_router.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

// T tokens choose k of E experts.

namespace automodel::moe {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Returns the weights unchanged; in backward the attached loss gets a constant gradient.
struct AttachLoss : torch::autograd::Function<AttachLoss> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weights,
                            const at::Tensor& loss, double scale) {
    context->saved_data["scale"] = scale;
    context->save_for_backward({loss});
    return weights.view_as(weights);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const at::Tensor loss = context->get_saved_variables()[0];
    return {gradients[0], at::full_like(loss, context->saved_data["scale"].toDouble()),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor aux_loss(const at::Tensor& scores, const at::Tensor& load, const at::Tensor& is_counted,
                    int64_t num_chosen, const SumOverSequence& sum) {
  const at::Tensor wide = scores.to(at::kFloat);
  const int64_t num_experts = scores.size(1);
  at::Tensor num_tokens = at::scalar_tensor(scores.size(0), wide.options());
  at::Tensor sums = wide.sum(0);
  if (is_counted.defined()) {
    num_tokens = is_counted.sum().to(at::kFloat);
    sums = (wide * is_counted.unsqueeze(1)).sum(0);
  }
  at::Tensor loads = load.to(at::kFloat);
  if (sum) {
    // One exchange for all; the gradient reaches this rank's scores only.
    const at::Tensor all = at::cat({loads, sums.detach(), num_tokens.view({1})});
    sum(all);
    loads = all.narrow(0, 0, num_experts);
    sums = sums + (all.narrow(0, num_experts, num_experts) - sums.detach());
    num_tokens = all[2 * num_experts];
  }
  num_tokens = num_tokens.clamp_min(1);
  const at::Tensor fraction = loads * num_experts / (num_tokens * num_chosen);
  return (fraction * (sums / num_tokens)).sum();
}

Routing CountingRouter::balanced_routing(const at::Tensor& scores) const {
  const int64_t k = config_.n_activated_experts;
  const at::Tensor ids = at::arange(scores.size(0) * k, scores.options().dtype(at::kLong))
                             .view({-1, k})
                             .remainder(config_.n_routed_experts);
  return {ids, at::full(ids.sizes(), 1.0 / static_cast<double>(k), scores.options())};
}

/// Adds the number of tokens of each expert to the load, and returns it.
at::Tensor CountingRouter::count(const at::Tensor& ids) {
  const at::NoGradGuard no_grad;
  const at::Tensor chosen = ids.flatten();
  const int64_t num_experts = config_.n_routed_experts;
  // Choices of none are counted behind the experts: the size of a selection would be read back.
  const at::Tensor counts =
      at::zeros({num_experts + 1}, chosen.options())
          .scatter_add_(0, at::where(chosen.lt(0), num_experts, chosen), at::ones_like(chosen))
          .narrow(0, 0, num_experts)
          .to(at::kFloat);
  load_ = load_.defined() ? load_ + counts : counts;
  return counts;
}

at::Tensor CountingRouter::with_aux_loss(const at::Tensor& shares, const at::Tensor& load,
                                         const at::Tensor& weights, const at::Tensor& is_padding) {
  const at::Tensor is_counted = is_padding.defined() ? is_padding.logical_not() : at::Tensor();
  const at::Tensor loss = aux_loss(shares, load, is_counted, weights.size(1), sum_over_sequence_);
  aux_loss_ = aux_loss_.defined() ? aux_loss_ + loss.detach() : loss.detach();
  ++num_aux_losses_;
  return AttachLoss::apply(weights, loss, aux_loss_scale_ * config_.aux_loss_coeff);
}

Routing CountingRouter::counted(Routing routing, const std::function<at::Tensor()>& shares,
                                const at::Tensor& is_padding, at::ScalarType dtype) {
  if (is_padding.defined() && is_training()) {
    routing.expert_ids = routing.expert_ids.masked_fill(is_padding.unsqueeze(1), -1);
  }
  // A recomputed block runs its first forward without gradients; only the one with gradients
  // counts.
  if (is_training() && at::GradMode::is_enabled()) {
    const at::Tensor load = count(routing.expert_ids);
    if (aux_loss_scale_ > 0 && config_.aux_loss_coeff > 0 && !config_.fake_balanced_gate) {
      routing.weights = with_aux_loss(shares(), load, routing.weights, is_padding);
    }
  }
  routing.weights = routing.weights.to(dtype);
  return routing;
}

void CountingRouter::check_finite(const at::Tensor& values, const char* what) const {
  if (!values.is_cpu() || values.sum(at::kFloat).isfinite().item<bool>()) return;
  throw UserError(cat("the router of ", name_, " computed ", what,
                      " that are not finite: the hidden states or the router's weights have "
                      "diverged"),
                  ExitCode::kNonFinite);
}

at::Tensor CountingRouter::take_load() {
  at::Tensor load = load_.defined() ? load_ : at::zeros({config_.n_routed_experts});
  load_ = at::Tensor();
  return load;
}

at::Tensor CountingRouter::take_aux_loss() {
  const at::Tensor sum =
      aux_loss_.defined() ? aux_loss_ : at::zeros({}, at::TensorOptions().dtype(at::kFloat));
  const at::Tensor mean = sum.to(at::kDouble) / std::max<int64_t>(num_aux_losses_, 1);
  aux_loss_ = at::Tensor();
  num_aux_losses_ = 0;
  return mean;
}

}  // namespace automodel::moe
