#include "kernels/loss/cross_entropy.h"

#include "core/error.h"
#include "kernels/differentiation.h"

namespace automodel::kernels {
namespace {

// T tokens, D hidden, V vocabulary.

Operation fused(const at::Tensor& labels, const CrossEntropyOptions& options) {
  return [=](const Tensors& in) {
    return Tensors{linear_cross_entropy(in[0], in[1], labels, options)};
  };
}

/// The loss by ATen's operations: products in the dtype of the inputs, all else in float32 if they
/// are narrower.
Operation plain(const at::Tensor& labels, const CrossEntropyOptions& options) {
  return [=](const Tensors& in) {
    const at::Tensor products = at::matmul(in[0], in[1].t());
    at::Tensor logits =
        products.to(at::promote_types(in[0].scalar_type(), at::kFloat)) * options.logit_scale;
    if (options.softcap > 0) logits = at::tanh(logits / options.softcap) * options.softcap;
    return Tensors{
        at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum, options.ignore_index) /
        options.divisor};
  };
}

constexpr int64_t kVocabSize = 91;

/// hidden [T, 24], weight [V, 24].
Tensors inputs(int64_t tokens) {
  Numbers numbers(9);
  return {numbers.normal({tokens, 24}), numbers.normal({kVocabSize, 24})};
}

at::Tensor labels_of(int64_t tokens) {
  return at::arange(tokens, at::kLong).mul(37).remainder(kVocabSize);
}

/// Every third token does not count.
at::Tensor with_ignored(const at::Tensor& labels, int64_t ignore_index) {
  return labels.masked_fill(at::arange(labels.size(0), at::kLong).remainder(3).eq(1), ignore_index);
}

void expect_match(const at::Tensor& labels, const CrossEntropyOptions& options) {
  expect_fused_as_close(fused(labels, options), plain(labels, options), inputs(labels.size(0)));
}

TEST(LinearCrossEntropy, MatchesThePlainPath) {
  for (const int64_t tokens : {1, 50, 512, 700}) {  // chunks are of 512 tokens
    SCOPED_TRACE(tokens);
    expect_match(labels_of(tokens), {.divisor = 13});
  }
}

/// As when a model's outputs are cast: torch rounds the logits, and their gradient on its way back.
TEST(LinearCrossEntropy, RoundsLogitsAndTheirGradients) {
  for (const double softcap : {0.0, 3.0}) {
    SCOPED_TRACE(softcap);
    const CrossEntropyOptions options{
        .softcap = softcap, .logit_scale = 0.5, .divisor = 13, .logits_dtype = at::kBFloat16};
    const at::Tensor labels = labels_of(50);
    const auto results_of = [&](const Operation& operation) {
      Tensors in = inputs(50);
      for (at::Tensor& tensor : in) tensor = tensor.to(at::kFloat).requires_grad_();
      const at::Tensor loss = operation(in)[0];
      loss.backward();
      return Tensors{loss, in[0].grad(), in[1].grad()};
    };
    const Tensors found = results_of(fused(labels, options));
    const Tensors wanted = results_of([&](const Tensors& in) {
      at::Tensor logits = at::matmul(in[0], in[1].t()) * options.logit_scale;
      if (softcap > 0) logits = at::tanh(logits / softcap) * softcap;
      const at::Tensor rounded = logits.to(at::kBFloat16).to(at::kFloat);
      return Tensors{at::cross_entropy_loss(rounded, labels, {}, at::Reduction::Sum, -100) / 13.0};
    });
    CrossEntropyOptions exact = options;
    exact.logits_dtype.reset();
    const Tensors unrounded = results_of(fused(labels, exact));
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto distance = [&](const Tensors& all) {
        return ((all[i] - wanted[i]).norm() / wanted[i].norm()).item<double>();
      };
      // Sums in another order may round a logit the other way, here and there.
      EXPECT_LT(distance(found), 2e-4) << i;
      EXPECT_GT(distance(unrounded), 2 * distance(found)) << i;
    }
  }
}

TEST(LinearCrossEntropy, MatchesThePlainPathWithIgnoredTokens) {
  for (const int64_t ignore_index : {-100, 5}) {
    SCOPED_TRACE(ignore_index);
    expect_match(with_ignored(labels_of(100), ignore_index),
                 {.ignore_index = ignore_index, .divisor = 7});
  }
}

TEST(LinearCrossEntropy, MatchesThePlainPathWithCappedLogits) {
  for (const double softcap : {2.0, 30.0}) {
    SCOPED_TRACE(softcap);
    expect_match(with_ignored(labels_of(100), -100), {.softcap = softcap, .divisor = 7});
  }
}

TEST(LinearCrossEntropy, MatchesThePlainPathWithScaledLogits) {
  expect_match(with_ignored(labels_of(100), -100), {.logit_scale = 0.125, .divisor = 7});
}

TEST(LinearCrossEntropy, MatchesThePlainPathWithScaledAndCappedLogits) {
  expect_match(labels_of(100), {.softcap = 4, .logit_scale = 0.25, .divisor = 7});
}

TEST(LinearCrossEntropy, StaysExactWithLargeLogits) {
  expect_match(labels_of(100), {.logit_scale = 100, .divisor = 7});
}

TEST(LinearCrossEntropy, GivesZeroWithZeroGradientsWithoutLabels) {
  const at::Tensor labels = at::full({20}, -100, at::kLong);
  for (const at::Tensor& tensor : differentiate(fused(labels, {}), inputs(20), at::kFloat)) {
    EXPECT_TRUE(tensor.eq(0).all().item<bool>());
  }
}

TEST(LinearCrossEntropy, NamesALabelOutsideTheVocabulary) {
  const Tensors in = inputs(4);
  for (const int64_t label : {-1, 91}) {
    const at::Tensor labels = at::full({4}, label, at::kLong);
    try {
      linear_cross_entropy(in[0], in[1], labels, {});
      ADD_FAILURE() << "no error";
    } catch (const InputError& error) {
      EXPECT_EQ(error.what(), cat("label ", label, " is outside the vocabulary of 91 tokens"));
    }
  }
}

TEST(LinearCrossEntropy, HasTheSameBitsOnTwoThreads) {
  expect_same_on_two_threads(fused(labels_of(700), {.divisor = 13}), inputs(700));
  expect_same_on_two_threads(fused(labels_of(700), {.softcap = 30, .logit_scale = 0.5}),
                             inputs(700));
}

// Large enough for BLAS to use both threads for one product.
TEST(LinearCrossEntropy, HasTheSameBitsOnTwoThreadsWithALargeHead) {
  Numbers numbers(13);
  expect_same_on_two_threads(fused(labels_of(600), {.divisor = 13}),
                             {numbers.normal({600, 256}), numbers.normal({2048, 256})});
}

TEST(LinearCrossEntropy, HidesNeitherNaNNorInf) {
  for (const double softcap : {0.0, 30.0}) {
    for (const double poison : kPoisons) {
      for (const size_t input : {0, 1}) {
        SCOPED_TRACE(testing::Message() << poison << " in input " << input << " cap " << softcap);
        const CrossEntropyOptions options{.softcap = softcap};
        expect_nothing_hidden(fused(labels_of(50), options), plain(labels_of(50), options),
                              poisoned(inputs(50), input, 30, poison));
      }
    }
  }
}

TEST(LinearCrossEntropy, ShowsNaNOfAnIgnoredTokenInTheGradientOfTheWeight) {
  const at::Tensor labels = with_ignored(labels_of(50), -100);
  const Tensors all =
      differentiate(fused(labels, {}), poisoned(inputs(50), 0, 24 + 5, kPoisons[0]), at::kFloat);
  EXPECT_TRUE(is_finite(all[0]));
  EXPECT_TRUE(is_nowhere_finite(all[2].select(1, 5)));
}

TEST(LinearCrossEntropy, GivesNaNForOneNaN) {
  for (const double softcap : {0.0, 30.0}) {
    const Tensors in = poisoned(inputs(50), 0, 24 * 49 + 5, kPoisons[0]);
    const at::Tensor loss = linear_cross_entropy(in[0], in[1], labels_of(50), {.softcap = softcap});
    EXPECT_TRUE(is_nowhere_finite(loss));
  }
}

}  // namespace
}  // namespace automodel::kernels
