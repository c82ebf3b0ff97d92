#include "distributed/tensor/tp_collectives.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "comm/ranks.h"
#include "distributed/tensor/vocab_parallel_loss.h"
#include "kernels/loss/cross_entropy.h"

namespace automodel::distributed {
namespace {

at::Tensor wave(at::IntArrayRef sizes, double phase) {
  int64_t numel = 1;
  for (const int64_t size : sizes) numel *= size;
  return at::sin(at::arange(numel, at::kFloat) * 0.7 + phase).view(sizes);
}

/// The gradient of sum(y * weights).
at::Tensor gradient_of(const at::Tensor& y, const at::Tensor& weights, const at::Tensor& x) {
  return torch::autograd::grad({(y * weights).sum()}, {x})[0];
}

void expect_equal(const at::Tensor& found, const at::Tensor& wanted, const std::string& what) {
  const bool is_equal = found.sizes() == wanted.sizes() && at::allclose(found, wanted, 1e-6, 1e-6);
  comm::expect(is_equal, what);
}

TEST(TpCollectivesTest, SplitFeaturesAreSummedAndGathered) {
  comm::expect_ranks(2, [](comm::World& world) {
    const comm::ProcessGroup group = world.group();
    const int rank = group.rank();
    const at::Tensor mine = wave({2, 3, 4}, rank).requires_grad_();
    const at::Tensor both = at::cat({wave({2, 3, 4}, 0), wave({2, 3, 4}, 1)}, -1);
    const at::Tensor sum = wave({2, 3, 4}, 0) + wave({2, 3, 4}, 1);
    const at::Tensor upstream = wave({2, 3, 8}, 5);

    expect_equal(enter_parts(mine, group), mine, "what enters is unchanged");
    const at::Tensor own_upstream = wave({2, 3, 4}, 7 + rank);
    expect_equal(gradient_of(enter_parts(mine, group), own_upstream, mine),
                 wave({2, 3, 4}, 7) + wave({2, 3, 4}, 8), "the parts' gradients are summed");

    expect_equal(sum_parts(mine, group), sum, "summands are summed");
    expect_equal(gradient_of(sum_parts(mine, group), upstream.narrow(-1, 0, 4), mine),
                 upstream.narrow(-1, 0, 4), "the sum's gradient is every summand's");

    expect_equal(gather_features(mine, group), both, "features are gathered by rank");
    expect_equal(gradient_of(gather_features(mine, group), upstream, mine),
                 upstream.narrow(-1, 4 * rank, 4), "a rank's gradient is that of its features");

    const at::Tensor whole = both.detach().clone().requires_grad_();
    expect_equal(take_features(whole, group), mine, "a rank takes its features");
    expect_equal(gradient_of(take_features(whole, group), upstream.narrow(-1, 4 * rank, 4), whole),
                 upstream, "the ranks' gradients are gathered");
  });
}

TEST(TpCollectivesTest, SplitSequencesOfAnyLengthAreSummedAndGathered) {
  comm::expect_ranks(2, [](comm::World& world) {
    const comm::ProcessGroup group = world.group();
    const int rank = group.rank();
    for (const int64_t length : {6, 5, 1}) {
      const int64_t run = (length + 1) / 2;
      const int64_t held = std::min(run, length - rank * run);
      const at::Tensor whole = wave({2, length, 3}, length).requires_grad_();
      const at::Tensor other = wave({2, length, 3}, 3);
      const at::Tensor padded = at::constant_pad_nd(whole, {0, 0, 0, 2 * run - length});
      const at::Tensor upstream = at::constant_pad_nd(other, {0, 0, 0, 2 * run - length});
      const std::string what = cat(" of ", length);

      const at::Tensor taken = take_sequence(whole, group);
      expect_equal(taken, padded.narrow(1, rank * run, run), "a rank's run" + what);
      expect_equal(gradient_of(taken, upstream.narrow(1, rank * run, run), whole), other,
                   "the runs' gradients are gathered" + what);

      const at::Tensor summed = sum_sequence_parts(whole * (rank + 1), group);
      expect_equal(summed, 3 * padded.narrow(1, rank * run, run), "the sum's run" + what);
      expect_equal(gradient_of(summed, upstream.narrow(1, rank * run, run), whole),
                   other * (rank + 1), "a summand's gradient is whole" + what);

      const at::Tensor part = taken.detach().requires_grad_();
      for (const auto kind : {OutputGradient::kWhole, OutputGradient::kSummand}) {
        const at::Tensor gathered = gather_sequence(part, length, group, kind);
        expect_equal(gathered, whole, "the sequence is gathered" + what);
        const double factor = kind == OutputGradient::kWhole ? 1 : 2;
        expect_equal(gradient_of(gathered, other, part).narrow(1, 0, held),
                     factor * upstream.narrow(1, rank * run, held), "its gradient is cut" + what);
      }
    }
  });
}

/// Sums of hundreds of products in float32: their roundings are compared with the whole.
void expect_near(const at::Tensor& found, const at::Tensor& wanted, const std::string& what) {
  const double off = (found - wanted).norm().item<double>() / wanted.norm().item<double>();
  comm::expect(off < 2e-6, cat(what, " is off by ", off));
}

/// Loss and gradients of the split vocabulary against those of the whole one.
void expect_whole_loss(const comm::ProcessGroup& group, const kernels::CrossEntropyOptions& options,
                       bool sums_hidden_gradient) {
  constexpr int64_t kTokens = 600, kVocab = 37, kDim = 8;  // two chunks, an uneven vocabulary
  const at::Tensor hidden = wave({kTokens, kDim}, 1).requires_grad_();
  const at::Tensor weight = (wave({kVocab, kDim}, 2) * 3).requires_grad_();
  const at::Tensor labels = at::remainder(at::arange(kTokens) * 11, kVocab);
  labels.narrow(0, 0, 50).fill_(options.ignore_index);
  const at::Tensor wanted = kernels::linear_cross_entropy(hidden, weight, labels, options);
  const auto wanted_gradients = torch::autograd::grad({wanted}, {hidden, weight});

  const VocabRange range = VocabRange::of(kVocab, group.rank(), group.size());
  at::Tensor part = at::zeros({range.stored, kDim});
  part.narrow(0, 0, range.count).copy_(weight.detach().narrow(0, range.first, range.count));
  part.requires_grad_();
  const auto head = make_vocab_parallel_loss_head(group, kVocab, sums_hidden_gradient);
  const at::Tensor loss = head->loss(hidden, part, labels, options);
  comm::expect(std::abs(loss.item<double>() / wanted.item<double>() - 1) < 1e-6, "loss");
  const auto gradients = torch::autograd::grad({loss}, {hidden, part});
  at::Tensor hidden_gradient = gradients[0].clone();
  if (!sums_hidden_gradient) group.all_reduce(hidden_gradient, comm::ReduceOp::kSum);
  expect_near(hidden_gradient, wanted_gradients[0], "gradient of the hidden states");
  expect_near(gradients[1].narrow(0, 0, range.count),
              wanted_gradients[1].narrow(0, range.first, range.count), "gradient of the rows");
  comm::expect(
      gradients[1].narrow(0, range.count, range.stored - range.count).abs().sum().item<double>() ==
          0,
      "rows behind the vocabulary get no gradient");
}

TEST(VocabParallelLossTest, LossAndGradientsAreThoseOfTheWholeVocabulary) {
  for (const int num_ranks : {2, 4}) {
    comm::expect_ranks(num_ranks, [](comm::World& world) {
      expect_whole_loss(world.group(), {.divisor = 7}, true);
      expect_whole_loss(world.group(), {.softcap = 2.5, .logit_scale = 0.5, .divisor = 3}, true);
      expect_whole_loss(world.group(), {.ignore_index = 4, .softcap = 20}, false);
    });
  }
}

TEST(VocabParallelLossTest, NoLabelAtAllGivesZeroAndZeroGradients) {
  comm::expect_ranks(2, [](comm::World& world) {
    const auto head = make_vocab_parallel_loss_head(world.group(), 6, true);
    const at::Tensor hidden = wave({4, 5}, 1).requires_grad_();
    const at::Tensor weight = wave({3, 5}, 2).requires_grad_();
    const at::Tensor loss = head->loss(hidden, weight, at::full({4}, -100, at::kLong), {});
    comm::expect(loss.item<double>() == 0, "loss");
    const auto gradients = torch::autograd::grad({loss}, {hidden, weight});
    comm::expect(gradients[0].abs().sum().item<double>() == 0, "gradient of the hidden states");
    comm::expect(gradients[1].abs().sum().item<double>() == 0, "gradient of the rows");
  });
}

TEST(VocabParallelLossTest, LabelsOutsideTheVocabularyAreNamed) {
  const auto head = make_vocab_parallel_loss_head(comm::ProcessGroup::solo(), 3, true);
  try {
    head->loss(at::ones({2, 4}), at::ones({3, 4}), at::tensor({2, 3}, at::kLong), {});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "label 3 is outside the vocabulary of 3 tokens");
  }
}

TEST(VocabRangeTest, TheFirstRanksHaveOneRowMore) {
  const int64_t counts[] = {3, 3, 2};
  int64_t first = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const VocabRange range = VocabRange::of(8, rank, 3);
    EXPECT_EQ(range.first, first);
    EXPECT_EQ(range.count, counts[rank]);
    EXPECT_EQ(range.stored, 3);
    first += range.count;
  }
}

}  // namespace
}  // namespace automodel::distributed
