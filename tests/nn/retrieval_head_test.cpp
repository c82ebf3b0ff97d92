#include "nn/retrieval_head.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "tensor/text_labels.h"

namespace automodel::nn {
namespace {

constexpr int64_t kQueries = 3;
constexpr int64_t kPassages = 2;
constexpr int64_t kDims = 4;

/// Embeddings of groups of a query and two passages, the same in every call.
at::Tensor texts(int64_t seed = 5) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return at::randn({kQueries * (1 + kPassages), kDims}, at::kDouble);
}

/// Labels of the groups, of which each passage has a name of its own from `first`.
at::Tensor named(int64_t first) {
  at::Tensor labels = at::full({kQueries, 1 + kPassages}, tensor::kQueryLabel, at::kLong);
  labels.narrow(1, 1, kPassages)
      .copy_((at::arange(kQueries * kPassages) + first).view({kQueries, kPassages}));
  return labels.flatten();
}

at::Tensor queries_of(const at::Tensor& all) {
  return all.view({kQueries, 1 + kPassages, kDims}).select(1, 0);
}

at::Tensor passages_of(const at::Tensor& all) {
  return all.view({kQueries, 1 + kPassages, kDims}).narrow(1, 1, kPassages);
}

at::Tensor normalized(const at::Tensor& all) {
  return all / all.norm(2, {-1}, true);
}

double loss_of(RetrievalLossHead& head, const at::Tensor& all, const at::Tensor& labels,
               bool is_training = true) {
  head.begin_batch(kQueries, is_training);
  return head.loss(all, at::Tensor(), labels, {.divisor = 2.0}).item<double>();
}

TEST(RetrievalHeadTest, AQueryIsComparedWithItsOwnPassages) {
  const at::Tensor all = texts();
  const at::Tensor zeros = at::zeros({kQueries}, at::kLong);
  const auto wanted = [&](const at::Tensor& each, double temperature) {
    const at::Tensor scores =
        at::matmul(passages_of(each), queries_of(each).unsqueeze(-1)).squeeze(-1) / temperature;
    return at::cross_entropy_loss(scores, zeros, {}, at::Reduction::Sum).item<double>() / 2;
  };
  RetrievalLossHead cosine({.normalizes = true, .temperature = 0.1});
  EXPECT_NEAR(loss_of(cosine, all, named(0)), wanted(normalized(all), 0.1), 1e-12);
  RetrievalLossHead dot({.normalizes = false, .temperature = 0.1});
  EXPECT_NEAR(loss_of(dot, all, named(0)), wanted(all, 1.0), 1e-12);
}

TEST(RetrievalHeadTest, RanksOfAnswersAreCounted) {
  RetrievalLossHead head({.normalizes = false});
  // Scores of the answers and the others: 2 and 1; 1 and 2; 1 and 1, of which the first counts.
  const at::Tensor all =
      at::tensor({1.0, 2.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0}).unsqueeze(1).to(at::kDouble);
  loss_of(head, all, named(0));
  EXPECT_EQ(head.num_queries().item<double>(), 3);
  EXPECT_EQ(head.num_right().item<double>(), 2);
  EXPECT_EQ(head.reciprocal_ranks().item<double>(), 2.5);
  loss_of(head, all, named(0));
  EXPECT_EQ(head.num_queries().item<double>(), 6) << "until reset() they add up";
  head.reset();
  EXPECT_FALSE(head.num_queries().defined());
}

/// The passages of all ranks are compared; what is the answer once more is not another passage.
TEST(RetrievalHeadTest, PassagesOfOtherRanksAreComparedOnceEach) {
  const at::Tensor own = texts();
  const at::Tensor other = texts(6);
  at::Tensor other_labels = named(100);
  // The other rank's second passage of its first query answers this rank's second query.
  other_labels[2] = named(0)[(1 + kPassages) + 1];
  RetrievalOptions options{.normalizes = false};
  options.shared.rank = 1;
  options.shared.gather = [&](const at::Tensor& mine) {
    const bool is_labels = mine.scalar_type() == at::kLong;
    const at::Tensor theirs =
        is_labels ? other_labels.view({kQueries, 1 + kPassages}).narrow(1, 1, kPassages).flatten()
                  : passages_of(other).flatten(0, 1);
    return at::cat({theirs, mine});
  };
  RetrievalLossHead head(std::move(options));
  const at::Tensor passages =
      at::cat({passages_of(other).flatten(0, 1), passages_of(own).flatten(0, 1)});
  at::Tensor scores = at::matmul(queries_of(own), passages.t());
  scores[1][1] = -std::numeric_limits<double>::infinity();
  const at::Tensor answers = (at::arange(kQueries) + kQueries) * kPassages;
  const double wanted =
      at::cross_entropy_loss(scores, answers, {}, at::Reduction::Sum).item<double>() / 2;
  EXPECT_NEAR(loss_of(head, own, named(0)), wanted, 1e-12);
  // Validation compares with the query's own passages, and so do passages without names.
  RetrievalLossHead alone({.normalizes = false});
  EXPECT_EQ(loss_of(head, own, named(0), false), loss_of(alone, own, named(0)));
}

}  // namespace
}  // namespace automodel::nn
