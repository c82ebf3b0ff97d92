#include "models/token_choice.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "core/error.h"
#include "tensor/random.h"

namespace automodel::models {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr uint64_t kDrawnTokens = 0x67656e6572617465;  // apart from what else a seed draws

/// Scores of the text's tokens lose what repetition costs. float32 [V].
at::Tensor penalized(const at::Tensor& logits, const TokenIds& text, double penalty) {
  const at::Tensor scores = logits.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  if (penalty == 1) return scores;
  const at::Tensor tokens = at::tensor(text, at::kLong);
  const at::Tensor own = scores.index_select(0, tokens);
  scores.index_put_({tokens}, at::where(own < 0, own * penalty, own / penalty));
  return scores;
}

/// Tokens beyond the most likely ones whose probabilities are `top_p` together get no chance.
void keep_top_p(at::Tensor& scores, double top_p) {
  if (top_p >= 1) return;
  const auto [sorted, order] = scores.sort(/*dim=*/0, /*descending=*/false);
  const at::Tensor is_left_out = sorted.softmax(0).cumsum(0) <= 1 - top_p;
  is_left_out[-1].fill_(false);  // one is always kept
  scores.masked_fill_(at::zeros_like(is_left_out).scatter(0, order, is_left_out), kNever);
}

}  // namespace

at::Tensor token_probabilities(const at::Tensor& logits, const TokenIds& text,
                               const TokenChoice& choice) {
  at::Tensor scores = penalized(logits, text, choice.repetition_penalty);
  if (choice.temperature != 1) scores.div_(choice.temperature);
  if (choice.top_k > 0 && choice.top_k < scores.numel()) {
    const at::Tensor least = std::get<0>(scores.topk(choice.top_k)).min();
    scores.masked_fill_(scores < least, kNever);
  }
  keep_top_p(scores, choice.top_p);
  if (choice.min_p > 0) {
    const at::Tensor shares = scores.softmax(0);
    scores.masked_fill_(shares < choice.min_p * shares.max(), kNever);
  }
  return scores.softmax(0);
}

int64_t choose_token(const at::Tensor& logits, const TokenIds& text, const TokenChoice& choice,
                     uint64_t number) {
  if (!choice.does_sample) {
    return penalized(logits, text, choice.repetition_penalty).argmax().item<int64_t>();
  }
  const at::Tensor sums = token_probabilities(logits, text, choice).to(at::kDouble).cumsum(0);
  const tensor::RandomKey key(choice.seed ^ kDrawnTokens, number);
  const double whole = sums[-1].item<double>();
  if (!(whole > 0)) throw InputError("a model's scores of the next token are not finite");
  const double drawn = whole * tensor::random_uniform(key, text.size());
  const auto* const first = sums.const_data_ptr<double>();
  // The first token up to which the probabilities are more than the drawn number: never one of
  // probability zero.
  return std::upper_bound(first, first + sums.numel() - 1, drawn) - first;
}

}  // namespace automodel::models
