#include "nn/retrieval_head.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tensor/dtype.h"

namespace automodel::nn {

namespace {

void add_to(at::Tensor& sum, const at::Tensor& value) {
  sum = sum.defined() ? sum + value : value;
}

}  // namespace

RetrievalLossHead::RetrievalLossHead(RetrievalOptions options)
    : options_(std::move(options)), plain_(make_local_loss_head()) {}

void RetrievalLossHead::begin_batch(int64_t num_groups, bool is_training) {
  num_groups_ = num_groups;
  is_training_ = is_training;
}

/// [T, ...] as [groups, texts of a group, ...].
at::Tensor RetrievalLossHead::in_groups(const at::Tensor& texts) const {
  AM_CHECK(num_groups_ > 0 && texts.size(0) % num_groups_ == 0, texts.size(0), " texts of ",
           num_groups_, " groups");
  std::vector<int64_t> sizes = texts.sizes().vec();
  sizes[0] = texts.size(0) / num_groups_;
  sizes.insert(sizes.begin(), num_groups_);
  return texts.view(sizes);
}

/// Scores of queries [Q, D] and the passages [Q, N, D] of all ranks; sets where the answers are. A
/// passage that is a query's answer once more is no other passage for it.
at::Tensor RetrievalLossHead::scores_of_all(const at::Tensor& queries, const at::Tensor& passages,
                                            const at::Tensor& names, at::Tensor& answers) const {
  const int64_t num_queries = queries.size(0);
  const int64_t num_passages = passages.size(1);
  const at::Tensor all = options_.shared.gather(passages.flatten(0, 1).contiguous());
  const at::Tensor all_names = options_.shared.gather(names.flatten().contiguous());
  answers = (at::arange(num_queries, names.options()) + options_.shared.rank * num_queries) *
            num_passages;
  const at::Tensor scores = at::matmul(queries, all.t());
  const at::Tensor own = all_names.index_select(0, answers).unsqueeze(1);
  const at::Tensor places = at::arange(all_names.size(0), names.options()).unsqueeze(0);
  const at::Tensor is_twin = all_names.unsqueeze(0).eq(own).logical_and(own.ge(0)).logical_and(
      places.ne(answers.unsqueeze(1)));
  return scores.masked_fill(is_twin, -std::numeric_limits<double>::infinity());
}

at::Tensor RetrievalLossHead::loss(const at::Tensor& hidden, const at::Tensor& /*weight*/,
                                   const at::Tensor& labels,
                                   const kernels::CrossEntropyOptions& options) {
  constexpr double kShortest = 1e-12;  // torch.nn.functional.normalize's
  at::Tensor texts = hidden.to(tensor::wide_dtype(hidden.scalar_type()));
  if (options_.normalizes) {
    texts = texts / texts.norm(2, {-1}, /*keepdim=*/true).clamp_min(kShortest);
  }
  const at::Tensor groups = in_groups(texts);
  const at::Tensor queries = groups.select(1, 0);
  const at::Tensor passages = groups.narrow(1, 1, groups.size(1) - 1);
  at::Tensor answers = at::zeros({queries.size(0)}, labels.options());
  at::Tensor scores;
  if (is_training_ && options_.shared) {
    const at::Tensor names = in_groups(labels).narrow(1, 1, groups.size(1) - 1);
    scores = scores_of_all(queries, passages, names, answers);
  } else {
    scores = at::matmul(passages, queries.unsqueeze(-1)).squeeze(-1);
  }
  if (options_.normalizes) scores = scores / options_.temperature;
  count(scores, answers);
  const at::Tensor logs = at::log_softmax(scores, 1).gather(1, answers.unsqueeze(1));
  return logs.sum().neg() / options.divisor;
}

/// Counts queries by their scores [Q, N] and the places of their answers [Q].
void RetrievalLossHead::count(const at::Tensor& scores, const at::Tensor& answers) {
  const at::NoGradGuard no_grad;
  const at::Tensor own = scores.gather(1, answers.unsqueeze(1));
  const at::Tensor places = at::arange(scores.size(1), answers.options()).unsqueeze(0);
  // A passage is before others of an equal score that come behind it.
  const at::Tensor is_before =
      scores.gt(own).logical_or(scores.eq(own).logical_and(places.lt(answers.unsqueeze(1))));
  const at::Tensor ranks = is_before.sum(1).to(at::kDouble) + 1;
  add_to(num_queries_, at::full({}, scores.size(0), ranks.options()));
  add_to(num_right_, ranks.eq(1).sum().to(at::kDouble));
  add_to(reciprocal_ranks_, ranks.reciprocal().sum());
}

void RetrievalLossHead::reset() {
  num_queries_ = num_right_ = reciprocal_ranks_ = at::Tensor();
}

}  // namespace automodel::nn
