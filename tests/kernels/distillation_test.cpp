#include "kernels/loss/distillation.h"

#include <optional>

#include "core/error.h"
#include "kernels/differentiation.h"

namespace automodel::kernels {
namespace {

// T tokens, V vocabulary; the student's hidden states are 24 wide, the teacher's 16.
constexpr int64_t kVocabSize = 91;

/// The student's hidden states and weight.
Tensors inputs(int64_t tokens) {
  Numbers numbers(9);
  return {numbers.normal({tokens, 24}), numbers.normal({kVocabSize, 24})};
}

/// In bfloat16's numbers, so that every dtype has the same teacher.
TeacherHead teacher_of(int64_t tokens, const CrossEntropyOptions& options = {}) {
  Numbers numbers(10);
  const auto held = [&](at::IntArrayRef sizes) {
    return numbers.normal(sizes).to(at::kBFloat16).to(at::kFloat);
  };
  return {held({tokens, 16}), held({kVocabSize, 16}), options};
}

/// Every third token does not count.
at::Tensor labels_of(int64_t tokens) {
  const at::Tensor at = at::arange(tokens, at::kLong);
  return at.mul(37).remainder(kVocabSize).masked_fill(at.remainder(3).eq(1), -100);
}

struct Problem {
  int64_t tokens = 100;
  CrossEntropyOptions options = {};
  CrossEntropyOptions of_teacher = {};
  DistillationOptions distillation = {};
};

Operation fused(const Problem& problem) {
  return [=](const Tensors& in) {
    TeacherHead teacher = teacher_of(problem.tokens, problem.of_teacher);
    teacher.hidden = teacher.hidden.to(in[0].scalar_type());
    teacher.weight = teacher.weight.to(in[0].scalar_type());
    const auto loss = linear_distillation(in[0], in[1], labels_of(problem.tokens), problem.options,
                                          teacher, problem.distillation, *whole_vocabulary());
    return Tensors{loss.total, loss.ce, loss.kd};
  };
}

at::Tensor plain_logits(const at::Tensor& hidden, const at::Tensor& weight,
                        const CrossEntropyOptions& options) {
  const at::Tensor products = at::matmul(hidden, weight.t());
  at::Tensor logits =
      products.to(at::promote_types(hidden.scalar_type(), at::kFloat)) * options.logit_scale;
  if (options.softcap > 0) logits = at::tanh(logits / options.softcap) * options.softcap;
  return logits;
}

/// The loss by ATen's operations, of the counted tokens alone.
Operation plain(const Problem& problem) {
  return [=](const Tensors& in) {
    const at::ScalarType dtype = in[0].scalar_type();
    const at::Tensor labels = labels_of(problem.tokens);
    const at::Tensor rows = labels.ne(-100).nonzero().squeeze(1);
    const TeacherHead teacher = teacher_of(problem.tokens);
    const at::Tensor s = plain_logits(in[0], in[1], problem.options).index_select(0, rows);
    const at::Tensor t =
        plain_logits(teacher.hidden.to(dtype), teacher.weight.to(dtype), problem.of_teacher)
            .index_select(0, rows);
    const double temperature = problem.distillation.temperature;
    const double ratio = problem.distillation.kd_ratio;
    const at::Tensor kd = at::kl_div(at::log_softmax(s / temperature, -1),
                                     at::log_softmax(t / temperature, -1), at::Reduction::Sum,
                                     /*log_target=*/true) *
                          (temperature * temperature / problem.options.divisor);
    at::Tensor ce =
        at::cross_entropy_loss(s, labels.index_select(0, rows), {}, at::Reduction::Sum) /
        problem.options.divisor;
    if (ratio == 1) ce = at::zeros_like(ce);
    return Tensors{ce * (1 - ratio) + kd * ratio, ce.detach().to(at::kDouble),
                   kd.detach().to(at::kDouble)};
  };
}

void expect_match(const Problem& problem) {
  expect_fused_as_close(fused(problem), plain(problem), inputs(problem.tokens));
}

TEST(LinearDistillation, MatchesThePlainPath) {
  for (const int64_t tokens : {1, 50, 256, 600}) {  // chunks are of 256 tokens
    SCOPED_TRACE(tokens);
    expect_match({.tokens = tokens, .options = {.divisor = 13}});
  }
}

TEST(LinearDistillation, MatchesThePlainPathAtEveryRatioAndTemperature) {
  for (const double ratio : {0.0, 0.3, 1.0}) {
    for (const double temperature : {0.5, 1.0, 4.0}) {
      SCOPED_TRACE(cat(ratio, " ", temperature));
      expect_match({.options = {.divisor = 7},
                    .distillation = {.kd_ratio = ratio, .temperature = temperature}});
    }
  }
}

TEST(LinearDistillation, EachModelScalesAndCapsItsOwnLogits) {
  expect_match({.options = {.softcap = 4, .logit_scale = 0.5, .divisor = 7},
                .distillation = {.temperature = 2}});
  expect_match({.options = {.divisor = 7},
                .of_teacher = {.softcap = 3, .logit_scale = 0.25},
                .distillation = {.temperature = 2}});
}

/// upstream divides bfloat16 logits in bfloat16 then.
TEST(LinearDistillation, WithoutUpcastLogitsAreDividedInTheHeadsDtype) {
  const DistillationOptions narrow{.kd_ratio = 1, .temperature = 1.7, .fp32_upcast = false};
  Problem problem{.distillation = narrow};
  Tensors in = inputs(problem.tokens);
  for (at::Tensor& tensor : in) tensor = tensor.to(at::kBFloat16);
  const double found = fused(problem)(in)[2].item<double>();
  problem.distillation.fp32_upcast = true;
  const double upcast = fused(problem)(in)[2].item<double>();

  const TeacherHead teacher = teacher_of(problem.tokens);
  const auto divided = [](const at::Tensor& hidden, const at::Tensor& weight) {
    const at::Tensor logits = at::matmul(hidden.to(at::kBFloat16), weight.to(at::kBFloat16).t());
    return at::log_softmax(logits.mul(1 / 1.7).to(at::kFloat), -1);
  };
  const at::Tensor q = divided(in[0], in[1]);
  const at::Tensor p = divided(teacher.hidden, teacher.weight);
  const at::Tensor counted = labels_of(problem.tokens).ne(-100).unsqueeze(1);
  const double wanted =
      ((p.exp() * (p - q)).mul(counted).sum(at::kDouble) * 1.7 * 1.7).item<double>();
  // One sum in two orders; products may be rounded the other way here and there.
  EXPECT_NEAR(found, wanted, 2e-5 * wanted);
  EXPECT_GT(std::abs(upcast - wanted), 10 * std::abs(found - wanted));
}

/// Logits of minus infinity, as masks of a vocabulary leave them.
TEST(LinearDistillation, ATokenThatBothModelsRuleOutAddsNothing) {
  const int64_t tokens = 20;
  const at::Tensor labels = labels_of(tokens).clamp_max(kVocabSize - 2);
  const auto losses = [&](int64_t vocab_size) {
    Tensors in = inputs(tokens);
    TeacherHead teacher = teacher_of(tokens);
    for (at::Tensor* hidden : {&in[0], &teacher.hidden}) *hidden = hidden->abs() + 0.5;
    for (at::Tensor* weight : {&in[1], &teacher.weight}) {
      weight->select(0, kVocabSize - 1).fill_(-1e38);
      *weight = weight->narrow(0, 0, vocab_size).contiguous();
    }
    in[0].requires_grad_();
    const auto loss = linear_distillation(in[0], in[1], labels, {}, teacher, {.temperature = 2},
                                          *whole_vocabulary());
    loss.total.backward();
    return Tensors{loss.ce, loss.kd, in[0].grad()};
  };
  const Tensors found = losses(kVocabSize);
  const Tensors wanted = losses(kVocabSize - 1);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(is_finite(found[i])) << i;
    EXPECT_LE(relative_error(found[i], wanted[i]), 1e-6) << i;
  }
}

TEST(LinearDistillation, GivesZeroWithZeroGradientsWithoutLabels) {
  const at::Tensor labels = at::full({20}, -100, at::kLong);
  const Operation operation = [&](const Tensors& in) {
    return Tensors{
        linear_distillation(in[0], in[1], labels, {}, teacher_of(20), {}, *whole_vocabulary())
            .total};
  };
  for (const at::Tensor& tensor : differentiate(operation, inputs(20), at::kFloat)) {
    EXPECT_TRUE(tensor.eq(0).all().item<bool>());
  }
}

TEST(LinearDistillation, AFrozenHeadStillTeachesHiddenStates) {
  const Tensors in = inputs(50);
  const auto gradient = [&](bool is_trained) {
    const at::Tensor hidden = in[0].clone().requires_grad_();
    const at::Tensor weight = in[1].clone().requires_grad_(is_trained);
    const auto loss = linear_distillation(hidden, weight, labels_of(50), {}, teacher_of(50), {},
                                          *whole_vocabulary());
    loss.total.backward();
    return hidden.grad();
  };
  EXPECT_TRUE(at::equal(gradient(false), gradient(true)));
}

TEST(LinearDistillation, NamesALabelOutsideTheVocabulary) {
  const Tensors in = inputs(4);
  try {
    linear_distillation(in[0], in[1], at::full({4}, 91, at::kLong), {}, teacher_of(4), {},
                        *whole_vocabulary());
    ADD_FAILURE() << "no error";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "label 91 is outside the vocabulary of 91 tokens");
  }
}

}  // namespace
}  // namespace automodel::kernels
