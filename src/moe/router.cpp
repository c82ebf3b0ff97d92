#include "moe/router.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>

#include "core/error.h"
#include "core/text.h"
#include "kernels/base/pointwise.h"
#include "kernels/products/linear.h"
#include "tensor/shard_spec.h"

// T tokens choose k of E experts, which lie in G equal groups.

namespace automodel::moe {

namespace {

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

Router::Router(const MoEConfig& config, std::string name, at::ScalarType dtype)
    : CountingRouter(config, std::move(name)) {
  using tensor::placeholder;
  const bool is_trained = config.train_gate;
  weight_ = register_parameter("weight", placeholder({config.n_routed_experts, config.dim}, dtype),
                               is_trained);
  if (config.router_bias) {
    bias_ = register_parameter("bias", placeholder({config.n_routed_experts}, dtype), is_trained);
  }
  if (config.has_correction_bias) {
    e_score_correction_bias_ = register_parameter(
        std::string(kCorrectionName), placeholder({config.n_routed_experts}, at::kFloat), false);
  }
  if (config.num_hashed_tokens > 0) {
    tid2eid_ = register_parameter(
        "tid2eid", placeholder({config.num_hashed_tokens, config.n_activated_experts}, at::kLong),
        false);
  }
}

at::Tensor Router::logits(const at::Tensor& x) const {
  const auto dtype =
      config().is_router_float32 && x.scalar_type() != at::kDouble ? at::kFloat : x.scalar_type();
  const at::Tensor bias = bias_.defined() ? bias_.to(dtype) : bias_;
  const at::Tensor out =
      kernels::linear(product_dtype_.of(x.to(dtype)), product_dtype_.of(weight_.to(dtype)),
                      product_dtype_.of(bias));
  check_finite(out, "logits");
  return out.scalar_type() == at::kDouble ? out : out.to(at::kFloat);
}

/// [T, E]: the scores of all experts.
at::Tensor Router::all_scores(const at::Tensor& logits) const {
  switch (config().score_func) {
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
  AM_CHECK(token_ids.defined(), "the router of ", layer_name(), " chooses by token ids");
  const at::Tensor ids = tid2eid_.index_select(0, token_ids);
  if (ids.is_cpu() && ids.numel() > 0) {
    const auto [least, most] = at::aminmax(ids);
    if (least.item<int64_t>() < 0 || most.item<int64_t>() >= config().n_routed_experts) {
      throw InputError(cat("the table of experts (tid2eid) of ", layer_name(), " names expert ",
                           least.item<int64_t>() < 0 ? least.item<int64_t>() : most.item<int64_t>(),
                           "; there are ", config().n_routed_experts));
    }
  }
  return ids;
}

at::Tensor Router::choose(const at::Tensor& scores, const at::Tensor& logits,
                          const at::Tensor& token_ids) const {
  const at::NoGradGuard no_grad;
  if (tid2eid_.defined()) return looked_up(token_ids);
  at::Tensor ranking = weighs_by_logits() || config().is_choice_by_logits ? logits : scores;
  if (e_score_correction_bias_.defined()) ranking = ranking + e_score_correction_bias_;
  if (config().score_func != ScoreFunction::kSqrtSoftplus) {
    ranking = limited_to_groups(ranking, config());
  }
  return std::get<1>(ranking.topk(config().n_activated_experts, -1));
}

/// The weights are a softmax of the chosen logits alone.
bool Router::weighs_by_logits() const {
  return config().score_func == ScoreFunction::kSoftmax && !config().softmax_before_topk;
}

bool Router::weighs_corrected() const {
  return config().router_weight_uses_score_correction_bias && e_score_correction_bias_.defined();
}

at::Tensor Router::chosen_weights(const at::Tensor& scores, const at::Tensor& logits,
                                  const at::Tensor& ids) const {
  at::Tensor weights;
  if (weighs_by_logits()) {
    weights = logits.gather(1, ids).softmax(-1);
  } else if (weighs_corrected()) {
    weights = (scores + e_score_correction_bias_).gather(1, ids);
  } else {
    weights = scores.gather(1, ids);
  }
  if (config().norm_topk_prob) {
    weights = weights / (weights.sum(-1, true) + config().topk_norm_eps);
  }
  return config().route_scale == 1.0 ? weights : weights * config().route_scale;
}

/// Each token's part of all experts, of which the aux loss takes the mean.
at::Tensor Router::shares(const at::Tensor& scores) const {
  const at::Tensor shares = weighs_corrected() ? scores + e_score_correction_bias_ : scores;
  const bool is_divided =
      config().norm_topk_prob && config().n_activated_experts > 1 && !weighs_by_logits();
  return is_divided ? shares / (shares.sum(-1, true) + config().topk_norm_eps) : shares;
}

Routing Router::forward(const at::Tensor& x, const at::Tensor& is_padding,
                        const at::Tensor& token_ids) {
  const at::Tensor raw = logits(x);
  const at::Tensor scores = all_scores(raw);
  Routing routing;
  if (config().fake_balanced_gate) {
    routing = balanced_routing(scores);
  } else {
    routing.expert_ids = choose(scores, raw, token_ids);
    routing.weights = chosen_weights(scores, raw, routing.expert_ids);
  }
  return counted(
      std::move(routing), [&] { return shares(scores); }, is_padding, x.scalar_type());
}

}  // namespace automodel::moe
