#include "moe/router.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "core/error.h"
#include "core/text.h"
#include "kernels/base/pointwise.h"
#include "kernels/products/linear.h"
#include "tensor/shard_spec.h"

// T tokens choose k of E experts, which lie in G equal groups.

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

/// Sets scores of experts outside the best groups to -inf. A group's score is the sum of its two
/// best experts' (the best one's for plain sigmoids without a correction, and where the config says
/// so).
at::Tensor limited_to_groups(const at::Tensor& scores, const MoEConfig& config) {
  if (config.n_expert_groups <= 1) return scores;
  const int64_t size = config.n_routed_experts / config.n_expert_groups;
  const at::Tensor grouped = scores.view({scores.size(0), config.n_expert_groups, size});
  const bool is_by_best =
      config.are_groups_by_best ||
      (config.score_func == ScoreFunction::kSigmoid && !config.has_correction_bias);
  const at::Tensor group_scores =
      is_by_best ? grouped.amax(-1)
                 : std::get<0>(grouped.topk(std::min<int64_t>(2, size), -1)).sum(-1);
  const at::Tensor best = std::get<1>(group_scores.topk(config.n_limited_groups, -1));
  const at::Tensor is_left_out = at::ones_like(group_scores, at::kBool).scatter_(1, best, false);
  return grouped.masked_fill(is_left_out.unsqueeze(-1), -std::numeric_limits<double>::infinity())
      .flatten(1);
}

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

Router::Router(const MoEConfig& config, std::string name, at::ScalarType dtype)
    : config_(config), name_(std::move(name)) {
  using tensor::placeholder;
  const bool is_trained = config.train_gate;
  weight_ = register_parameter("weight", placeholder({config.n_routed_experts, config.dim}, dtype),
                               is_trained);
  if (config.router_bias) {
    bias_ = register_parameter("bias", placeholder({config.n_routed_experts}, dtype), is_trained);
  }
  if (config.has_correction_bias) {
    e_score_correction_bias_ = register_parameter(
        "e_score_correction_bias", placeholder({config.n_routed_experts}, at::kFloat), false);
  }
  if (config.num_hashed_tokens > 0) {
    tid2eid_ = register_parameter(
        "tid2eid", placeholder({config.num_hashed_tokens, config.n_activated_experts}, at::kLong),
        false);
  }
}

at::Tensor Router::logits(const at::Tensor& x) const {
  const auto dtype =
      config_.is_router_float32 && x.scalar_type() != at::kDouble ? at::kFloat : x.scalar_type();
  const at::Tensor bias = bias_.defined() ? bias_.to(dtype) : bias_;
  const at::Tensor out =
      kernels::linear(product_dtype_.of(x.to(dtype)), product_dtype_.of(weight_.to(dtype)),
                      product_dtype_.of(bias));
  if (out.is_cpu() && !out.sum().isfinite().item<bool>()) {
    throw UserError(cat("the router of ", name_,
                        " computed logits that are not finite: the hidden states or the router's "
                        "weights have diverged"),
                    ExitCode::kNonFinite);
  }
  return out.scalar_type() == at::kDouble ? out : out.to(at::kFloat);
}

/// [T, E]: the scores of all experts.
at::Tensor Router::all_scores(const at::Tensor& logits) const {
  switch (config_.score_func) {
    case ScoreFunction::kSoftmax:
    case ScoreFunction::kSoftmaxWithBias:
      return logits.softmax(-1);
    case ScoreFunction::kSigmoid:
    case ScoreFunction::kSigmoidWithBias:
      return kernels::sigmoid(logits);
    case ScoreFunction::kSqrtSoftplus:
      return kernels::softplus(logits).sqrt();
  }
  AM_CHECK(false);
}

/// The table's experts [T, k].
at::Tensor Router::looked_up(const at::Tensor& token_ids) const {
  AM_CHECK(token_ids.defined(), "the router of ", name_, " chooses by token ids");
  const at::Tensor ids = tid2eid_.index_select(0, token_ids);
  if (ids.is_cpu() && ids.numel() > 0) {
    const auto [least, most] = at::aminmax(ids);
    if (least.item<int64_t>() < 0 || most.item<int64_t>() >= config_.n_routed_experts) {
      throw InputError(cat("the table of experts (tid2eid) of ", name_, " names expert ",
                           least.item<int64_t>() < 0 ? least.item<int64_t>() : most.item<int64_t>(),
                           "; there are ", config_.n_routed_experts));
    }
  }
  return ids;
}

at::Tensor Router::choose(const at::Tensor& scores, const at::Tensor& logits,
                          const at::Tensor& token_ids) const {
  const at::NoGradGuard no_grad;
  const int64_t k = config_.n_activated_experts;
  if (config_.fake_balanced_gate) {
    return at::arange(scores.size(0) * k, scores.options().dtype(at::kLong))
        .view({-1, k})
        .remainder(config_.n_routed_experts);
  }
  if (tid2eid_.defined()) return looked_up(token_ids);
  const bool is_by_logits =
      config_.score_func == ScoreFunction::kSoftmax && !config_.softmax_before_topk;
  at::Tensor ranking = is_by_logits ? logits : scores;
  if (e_score_correction_bias_.defined()) ranking = ranking + e_score_correction_bias_;
  if (config_.score_func != ScoreFunction::kSqrtSoftplus) {
    ranking = limited_to_groups(ranking, config_);
  }
  return std::get<1>(ranking.topk(k, -1));
}

bool Router::weighs_corrected() const {
  return config_.router_weight_uses_score_correction_bias && e_score_correction_bias_.defined();
}

at::Tensor Router::chosen_weights(const at::Tensor& scores, const at::Tensor& logits,
                                  const at::Tensor& ids) const {
  if (config_.fake_balanced_gate) {
    return at::full(ids.sizes(), 1.0 / static_cast<double>(ids.size(1)), scores.options());
  }
  at::Tensor weights;
  if (config_.score_func == ScoreFunction::kSoftmax && !config_.softmax_before_topk) {
    weights = logits.gather(1, ids).softmax(-1);
  } else if (weighs_corrected()) {
    weights = (scores + e_score_correction_bias_).gather(1, ids);
  } else {
    weights = scores.gather(1, ids);
  }
  if (config_.norm_topk_prob) {
    weights = weights / (weights.sum(-1, true) + 1e-20);
  }
  return config_.route_scale == 1.0 ? weights : weights * config_.route_scale;
}

/// Adds the number of tokens of each expert to the load, and returns it.
at::Tensor Router::count(const at::Tensor& ids) {
  const at::NoGradGuard no_grad;
  const at::Tensor chosen = ids.flatten();
  const at::Tensor counts =
      at::bincount(chosen.masked_select(chosen.ge(0)), {}, config_.n_routed_experts).to(at::kFloat);
  load_ = load_.defined() ? load_ + counts : counts;
  return counts;
}

at::Tensor Router::balanced(const at::Tensor& scores, const at::Tensor& load,
                            const at::Tensor& weights, const at::Tensor& is_padding) {
  at::Tensor shares = weighs_corrected() ? scores + e_score_correction_bias_ : scores;
  const int64_t num_chosen = weights.size(1);
  const bool has_logit_choice =
      config_.score_func == ScoreFunction::kSoftmax && !config_.softmax_before_topk;
  if (config_.norm_topk_prob && num_chosen > 1 && !has_logit_choice) {
    shares = shares / (shares.sum(-1, true) + 1e-20);
  }
  const at::Tensor is_counted = is_padding.defined() ? is_padding.logical_not() : at::Tensor();
  const at::Tensor loss = aux_loss(shares, load, is_counted, num_chosen, sum_over_sequence_);
  aux_loss_ = aux_loss_.defined() ? aux_loss_ + loss.detach() : loss.detach();
  ++num_aux_losses_;
  return AttachLoss::apply(weights, loss, aux_loss_scale_ * config_.aux_loss_coeff);
}

Routing Router::forward(const at::Tensor& x, const at::Tensor& is_padding,
                        const at::Tensor& token_ids) {
  const at::Tensor raw = logits(x);
  const at::Tensor scores = all_scores(raw);
  Routing routing;
  routing.expert_ids = choose(scores, raw, token_ids);
  routing.weights = chosen_weights(scores, raw, routing.expert_ids);
  if (is_padding.defined() && is_training()) {
    routing.expert_ids = routing.expert_ids.masked_fill(is_padding.unsqueeze(1), -1);
  }
  // A recomputed block runs its first forward without gradients; only the one with gradients
  // counts.
  if (is_training() && at::GradMode::is_enabled()) {
    const at::Tensor load = count(routing.expert_ids);
    if (aux_loss_scale_ > 0 && config_.aux_loss_coeff > 0 && !config_.fake_balanced_gate) {
      routing.weights = balanced(scores, load, routing.weights, is_padding);
    }
  }
  routing.weights = routing.weights.to(x.scalar_type());
  return routing;
}

at::Tensor Router::take_load() {
  at::Tensor load = load_.defined() ? load_ : at::zeros({config_.n_routed_experts});
  load_ = at::Tensor();
  return load;
}

double Router::take_aux_loss() {
  const double mean =
      num_aux_losses_ > 0 ? aux_loss_.item<double>() / static_cast<double>(num_aux_losses_) : 0;
  aux_loss_ = at::Tensor();
  num_aux_losses_ = 0;
  return mean;
}

}  // namespace automodel::moe
