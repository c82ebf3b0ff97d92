#include "kernels/attention/key_choice.h"

#include <set>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_block.h"
#include "kernels/differentiation.h"

namespace automodel::kernels {
namespace {

constexpr int64_t kLength = 21, kHeads = 3, kDim = 5, kChosen = 4;

IndexerScores some_scores() {
  Numbers numbers(4);
  return {numbers.normal({2, kLength, kHeads, kDim}), numbers.normal({2, kLength, kDim}),
          numbers.normal({2, kLength, kHeads}), 0.7};
}

/// Documents of 9 and 12 tokens; of the second sequence 15 and 6.
at::Tensor some_documents() {
  const at::Tensor places = at::arange(kLength, at::kLong);
  return at::stack({places.ge(9), places.ge(15)}).to(at::kLong);
}

/// Padding at the end of the second sequence.
at::Tensor some_padding() {
  const at::Tensor places = at::arange(kLength, at::kLong);
  return at::stack({places.lt(0), places.ge(17)});
}

bool may_see(const KeyChoiceOptions& options, int64_t b, int64_t query, int64_t key) {
  if (key > query) return false;
  if (options.padding_mask.defined() && options.padding_mask[b][key].item<bool>()) return false;
  return !options.document_ids.defined() || options.document_ids[b][key].item<int64_t>() ==
                                                options.document_ids[b][query].item<int64_t>();
}

/// The score of one key, number by number.
double score_of(const IndexerScores& scores, int64_t b, int64_t query, int64_t key) {
  double sum = 0;
  for (int64_t head = 0; head < scores.q.size(2); ++head) {
    double product = 0;
    for (int64_t d = 0; d < scores.q.size(3); ++d) {
      product += scores.q[b][query][head][d].item<double>() * scores.k[b][key][d].item<double>();
    }
    sum += scores.weights[b][query][head].item<double>() * std::max(0.0, product * scores.scale);
  }
  return sum;
}

/// The visible ones among the chosen keys.
std::set<int64_t> seen(const at::Tensor& chosen, const KeyChoiceOptions& options, int64_t b,
                       int64_t query) {
  std::set<int64_t> keys;
  for (int64_t i = 0; i < chosen.size(2); ++i) {
    const int64_t key = chosen[b][query][i].item<int64_t>();
    if (may_see(options, b, query, key)) keys.insert(key);
  }
  return keys;
}

void expect_best(const KeyChoiceOptions& options) {
  const IndexerScores scores = some_scores();
  const at::Tensor chosen = choose_keys(scores, options);
  ASSERT_EQ(chosen.sizes(), (at::IntArrayRef{2, kLength, options.num_chosen}));
  EXPECT_EQ(chosen.scalar_type(), at::kInt);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t query = 0; query < kLength; ++query) {
      std::vector<std::pair<double, int64_t>> ranked;
      for (int64_t key = 0; key < kLength; ++key) {
        if (may_see(options, b, query, key))
          ranked.emplace_back(-score_of(scores, b, query, key), key);
      }
      std::sort(ranked.begin(), ranked.end());
      const std::set<int64_t> found = seen(chosen, options, b, query);
      const size_t count = std::min(ranked.size(), static_cast<size_t>(options.num_chosen));
      EXPECT_EQ(found.size(), count) << b << " " << query;
      // Keys of equal scores, which are zeros, replace each other.
      for (size_t i = 0; i < count; ++i) {
        const bool is_tied =
            count < ranked.size() && std::abs(ranked[i].first - ranked[count].first) < 1e-5;
        EXPECT_TRUE(is_tied || found.contains(ranked[i].second)) << b << " " << query;
      }
    }
  }
}

TEST(ChooseKeys, ChoosesTheBestOfThoseBefore) {
  expect_best({.num_chosen = kChosen});
}

TEST(ChooseKeys, ChoosesWithinADocumentAndNoPadding) {
  expect_best({.num_chosen = kChosen, .document_ids = some_documents()});
  expect_best({.num_chosen = kChosen, .padding_mask = some_padding()});
  expect_best(
      {.num_chosen = kChosen, .padding_mask = some_padding(), .document_ids = some_documents()});
}

TEST(ChooseKeys, PiecesOfQueriesChooseAsAllTogether) {
  for (const at::Tensor& ids : {at::Tensor(), some_documents()}) {
    KeyChoiceOptions options{.num_chosen = kChosen, .document_ids = ids};
    const at::Tensor whole = choose_keys(some_scores(), options);
    options.max_scores = 1;  // the fewest queries at once
    EXPECT_TRUE(at::equal(choose_keys(some_scores(), options), whole));
  }
}

/// Keys that are not the queries' own tokens: each query's are a run.
TEST(ChooseKeys, ChoosesInTheRunsThatAreGiven) {
  constexpr int64_t kKeys = 9;
  IndexerScores scores = some_scores();
  scores.k = Numbers(5).normal({2, kKeys, kDim});
  at::Tensor runs = at::zeros({2, kLength, 2}, at::kLong);
  for (int64_t query = 0; query < kLength; ++query) {
    runs[0][query][1] = std::min(query / 2, kKeys);
    runs[1][query][0] = query < 10 ? 0 : 2;
    runs[1][query][1] = query < 10 ? 1 : kKeys;
  }
  KeyChoiceOptions options{.num_chosen = kChosen, .visible_keys = runs};
  const at::Tensor chosen = choose_keys(scores, options);
  ASSERT_EQ(chosen.sizes(), (at::IntArrayRef{2, kLength, kChosen}));
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t query = 0; query < kLength; ++query) {
      const int64_t begin = runs[b][query][0].item<int64_t>();
      const int64_t end = runs[b][query][1].item<int64_t>();
      std::vector<double> ranked;
      for (int64_t key = begin; key < end; ++key) {
        ranked.push_back(-score_of(scores, b, query, key));
      }
      std::ranges::sort(ranked);
      std::vector<double> found;
      for (int64_t i = 0; i < kChosen; ++i) {
        const int64_t key = chosen[b][query][i].item<int64_t>();
        if (key >= begin && key < end) found.push_back(-score_of(scores, b, query, key));
      }
      std::ranges::sort(found);
      ASSERT_EQ(found.size(), std::min(ranked.size(), static_cast<size_t>(kChosen)));
      for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], ranked[i], 1e-5);
    }
  }
  options.num_chosen = kKeys;
  EXPECT_FALSE(choose_keys(scores, options).defined());
}

TEST(ChooseKeys, IsNotNeededWhereAllKeysAreChosen) {
  EXPECT_FALSE(choose_keys(some_scores(), {.num_chosen = kLength}).defined());
  const at::Tensor ids = some_documents();
  EXPECT_FALSE(choose_keys(some_scores(), {.num_chosen = 15, .document_ids = ids}).defined());
  EXPECT_TRUE(choose_keys(some_scores(), {.num_chosen = 14, .document_ids = ids}).defined());
}

// B sequences, S positions, C chosen keys: attention to a choice.

Tensors inputs() {
  Numbers numbers(6);
  return {numbers.normal({2, kLength, 4, 8}) * 2, numbers.normal({2, kLength, 2, 8}),
          numbers.normal({2, kLength, 2, 6})};
}

Operation attend(AttentionResult (*path)(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                         const AttentionOptions&),
                 const AttentionOptions& options) {
  return [path, options](const Tensors& in) {
    return Tensors{path(in[0], in[1], in[2], options).out};
  };
}

TEST(AttentionToChosenKeys, IsThatOfScoresWithoutTheOthers) {
  for (const at::Tensor& ids : {at::Tensor(), some_documents()}) {
    const KeyChoiceOptions choice{.num_chosen = kChosen, .document_ids = ids};
    AttentionOptions options{.scale = 0.3, .document_ids = ids};
    options.chosen_keys = choose_keys(some_scores(), choice);
    at::Tensor mask = at::full({2, 1, kLength, kLength}, -1e30);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t query = 0; query < kLength; ++query) {
        for (const int64_t key : seen(options.chosen_keys, choice, b, query)) {
          mask[b][0][query][key] = 0;
        }
      }
    }
    const Operation by_mask = [&](const Tensors& in) {
      const auto heads = [](const at::Tensor& x) {
        return x.repeat_interleave(4 / x.size(2), 2).transpose(1, 2);
      };
      const at::Tensor scores =
          at::matmul(heads(in[0]), heads(in[1]).transpose(-1, -2)) * 0.3 + mask;
      return Tensors{at::matmul(scores.softmax(-1), heads(in[2])).transpose(1, 2)};
    };
    const Tensors exact = differentiate(by_mask, inputs(), at::kDouble);
    for (const auto& path : {causal_attention, causal_attention_reference}) {
      const Tensors found = differentiate(attend(path, options), inputs(), at::kDouble);
      for (size_t i = 0; i < exact.size(); ++i) {
        EXPECT_LE(relative_error(found[i], exact[i]), 1e-12) << i;
      }
    }
    expect_fused_as_close(attend(causal_attention, options),
                          attend(causal_attention_reference, options), inputs());
  }
}

TEST(AttentionToChosenKeys, IsThatOfAllWhereAllAreChosen) {
  AttentionOptions options;
  options.chosen_keys = at::arange(kLength, at::kInt).expand({2, kLength, kLength});
  expect_fused_as_close(attend(causal_attention, options), attend(causal_attention, {}), inputs());
}

TEST(AttentionToChosenKeys, PiecesOfQueriesAreAsAllTogether) {
  const Tensors in = inputs();
  AttentionBlock block;
  block.chosen_keys = choose_keys(some_scores(), {.num_chosen = kChosen});
  const auto run = [&] {
    AttentionResult result{at::empty({2, kLength, 4, 6}), at::empty({2, 4, kLength})};
    attend_block(block, {in[0], in[1], in[2]}, result);
    Qkv d{at::zeros_like(in[0]), at::zeros_like(in[1]), at::zeros_like(in[2])};
    const at::Tensor d_out = at::ones_like(result.out);
    attend_block_backward(block, {in[0], in[1], in[2]}, result, d_out, d);
    return Tensors{result.out, result.lse, d.q, d.k, d.v};
  };
  const Tensors whole = run();
  block.max_scores = 1;
  const Tensors pieces = run();
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_LE(relative_error(pieces[i], whole[i]), 1e-6) << i;
  }
}

}  // namespace
}  // namespace automodel::kernels
