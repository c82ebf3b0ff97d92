#include "moe/expert_sizes.h"

#include <algorithm>
#include <cmath>

#include "core/divide.h"

// T tokens of D dims choose k of E experts with U rows of their first product and I inner dims.
// With latent projections D is their size, and their outputs are kept, T D each. Kept for A choices
// of M rows:
//   the router's scores T E, the choices, their weights before and after scaling T k
//   indices between rows and choices: 2 A + M k numbers of 8 bytes; weights M k; first products A U
//   if tokens are exchanged: the received tokens M D, and the tokens' indices.

namespace automodel::moe {

namespace {

/// The share, among all ways to choose k of n, of those that contain none of m.
double share_without(int64_t n, int64_t m, int64_t k) {
  if (k > n - m) return 0;
  double share = 1;
  for (int64_t i = 0; i < k; ++i) {
    share *= static_cast<double>(n - m - i) / static_cast<double>(n - i);
  }
  return share;
}

double num_ways(int64_t n, int64_t k) {
  if (k < 0 || k > n) return 0;
  return std::exp(std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0));
}

}  // namespace

double share_of_tokens(const MoEConfig& config, int64_t num_ranks) {
  const int64_t num_experts = config.n_routed_experts;
  const int64_t k = config.n_activated_experts;
  const int64_t groups = std::max<int64_t>(config.n_expert_groups, 1);
  const int64_t limit = groups == 1 ? 1 : config.n_limited_groups;
  const int64_t group_size = num_experts / groups;
  const int64_t held = num_experts / num_ranks;
  // A rank has a part of one group or several whole groups; a token may choose from some groups.
  const int64_t held_groups = std::max<int64_t>(held / group_size, 1);
  const int64_t held_of_group = std::min(held, group_size);
  double share = 0;
  for (int64_t open = 1; open <= std::min(held_groups, limit); ++open) {
    const double likely = num_ways(held_groups, open) *
                          num_ways(groups - held_groups, limit - open) / num_ways(groups, limit);
    share += likely * (1 - share_without(limit * group_size, open * held_of_group, k));
  }
  return share;
}

ExpertSizes::ExpertSizes(const MoEConfig& config, const ExpertTokens& tokens)
    : config_(config), tokens_(tokens) {
  const int64_t same = is_split() ? tokens.num_same_token_ranks : 1;
  num_own_ = ceil_div(tokens.num_tokens, same);
  num_choices_ = num_own_ * config.n_activated_experts;
  num_rows_ = num_own_;
  if (is_split()) {
    const double ranks = static_cast<double>(tokens.num_expert_ranks) *
                         share_of_tokens(config, tokens.num_expert_ranks);
    num_rows_ = std::llround(ranks * static_cast<double>(num_own_));
  }
}

int64_t ExpertSizes::some_choices(int64_t dim) const {
  constexpr int64_t kAtOnce = 2;
  const int64_t num_experts = config_.n_routed_experts / tokens_.num_expert_ranks;
  return choices(dim) * std::min(kAtOnce, num_experts) / num_experts;
}

/// The inputs of all choices, each times its weight, and the indices of their sums.
int64_t ExpertSizes::weighted_inputs() const {
  if (!config_.are_inputs_weighted) return 0;
  const int64_t k = config_.n_activated_experts;
  return rows(config_.expert_dim()) * k + num_rows_ * k * 16;
}

int64_t ExpertSizes::kept() const {
  const int64_t k = config_.n_activated_experts;
  const int64_t e = tokens_.element_size;
  const int64_t router =
      tokens_.num_tokens * (config_.n_routed_experts * 4 + k * (is_split() ? 16 : 16 + e));
  const int64_t num_shared = config_.shared_gate_bounds.are_there() ? 5 : 3;  // with the bounded
  const int64_t shared = tokens_.num_tokens * config_.shared_inner_dim() * num_shared * e;
  const int64_t order = num_choices_ * 16 + num_rows_ * k * 8;
  const int64_t travelled = is_split() ? rows(config_.expert_dim() + k) + num_rows_ * 8 : 0;
  // Where tokens travel, experts keep those that arrived instead of the first projection's output.
  const int64_t latents = tokens_.num_tokens * config_.moe_latent_size * e * (is_split() ? 1 : 2);
  return router + shared + order + choices(config_.expert_width()) + travelled + latents +
         weighted_inputs();
}

int64_t ExpertSizes::forward_working() const {
  const int64_t dim = config_.expert_dim();
  const int64_t stream = tokens_.num_tokens * dim * tokens_.element_size;
  const int64_t sums = is_split() ? rows(dim) : stream;
  const int64_t computing =
      choices(dim) + std::max(sums, some_choices(config_.moe_inter_dim + dim));
  if (!is_split()) return computing;
  const int64_t own = num_own_ * dim * tokens_.element_size;
  const int64_t later = choices(config_.expert_width());  // part of what is kept, not allocated yet
  const int64_t leaving = own + rows(dim) - later;
  const int64_t returning = 2 * rows(dim) + own + (own == stream ? 0 : stream);
  return std::max({computing, leaving, returning});
}

int64_t ExpertSizes::backward_working() const {
  const int64_t dim = config_.expert_dim();
  const int64_t width = config_.expert_width();
  const int64_t inner = config_.moe_inter_dim;
  const int64_t weights = config_.n_routed_experts / tokens_.num_expert_ranks * dim *
                          (width + inner) * tokens_.element_size;
  const int64_t stream = tokens_.num_tokens * dim * tokens_.element_size;
  const int64_t arrived = is_split() ? rows(dim) : 0;
  const int64_t sums = is_split() ? rows(dim) : stream;
  return arrived + weights + choices(dim) + std::max(sums, some_choices(width + 2 * inner));
}

int64_t ExpertSizes::sent_forward() const {
  if (!is_split()) return 0;
  const int64_t k = config_.n_activated_experts;
  return tokens_.num_expert_ranks * 8 + num_rows_ * k * 8 + rows(config_.expert_dim() + k) +
         rows(config_.expert_dim());
}

int64_t ExpertSizes::sent_backward() const {
  if (!is_split()) return 0;
  return rows(config_.expert_dim()) + rows(config_.expert_dim() + config_.n_activated_experts);
}

}  // namespace automodel::moe
