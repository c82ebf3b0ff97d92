#include "kernels/attention/two_part_attention.h"

#include "kernels/differentiation.h"
#include "kernels/loss/expected_embedding.h"

namespace automodel::kernels {
namespace {

/// Some runs, some empty, some of everything.
at::Tensor some_runs(int64_t num_queries, int64_t num_keys) {
  at::Tensor runs = at::zeros({2, num_queries, 2}, at::kLong);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t i = 0; i < num_queries; ++i) {
      const int64_t first = (3 * i + b) % num_keys;
      runs[b][i][0] = first;
      runs[b][i][1] = std::min(num_keys, first + (5 * i + b) % (num_keys + 1));
    }
  }
  return runs;
}

Tensors two_parts(at::ScalarType dtype) {
  Numbers numbers(4);
  Tensors in = {numbers.normal({2, 70, 4, 16}), numbers.normal({2, 33, 2, 16}),
                numbers.normal({2, 33, 2, 16}), numbers.normal({2, 70, 2, 16}),
                numbers.normal({2, 70, 2, 16})};
  for (at::Tensor& x : in) x = x.to(dtype);
  return in;
}

template <typename Attention>
Operation attention_of(const Attention& attention) {
  const at::Tensor first = some_runs(70, 33);
  const at::Tensor second = some_runs(70, 70);
  return [=](const Tensors& in) {
    return Tensors{
        attention(in[0], {in[1], in[2], first}, {in[3], in[4], second}, {.scale = 0.25})};
  };
}

TEST(TwoPartAttention, ValuesAndGradientsAreThoseOfOneSoftmaxOverBothParts) {
  at::set_num_threads(1);
  const Tensors truth = differentiate(attention_of(two_part_attention_reference),
                                      two_parts(at::kDouble), at::kDouble);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const Tensors found = differentiate(attention_of(two_part_attention), two_parts(dtype), dtype);
    for (size_t i = 0; i < truth.size(); ++i) {
      EXPECT_LE(relative_error(found[i], truth[i]), dtype == at::kDouble ? 1e-12 : 2e-6) << i;
    }
  }
}

TEST(TwoPartAttention, SixteenBitResultsAreOfTheQueriesType) {
  at::set_num_threads(1);
  const Tensors truth = differentiate(attention_of(two_part_attention_reference),
                                      two_parts(at::kDouble), at::kDouble);
  const Tensors found =
      differentiate(attention_of(two_part_attention), two_parts(at::kBFloat16), at::kBFloat16);
  for (size_t i = 0; i < truth.size(); ++i) {
    EXPECT_EQ(found[i].scalar_type(), at::kBFloat16);
    EXPECT_LE(relative_error(found[i], truth[i]), 2e-2) << i;  // operands of 8 bits
  }
}

/// Three keys of each query's run of the second part, and some outside it.
at::Tensor some_choice(int64_t num_queries, int64_t num_keys) {
  at::Tensor chosen = at::empty({2, num_queries, 3}, at::kInt);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t i = 0; i < num_queries; ++i) {
      for (int64_t j = 0; j < 3; ++j) chosen[b][i][j] = (3 * i + b + 2 * j) % num_keys;
    }
  }
  return chosen;
}

/// As DeepSeek V4's layers attend: sinks, and of the second part chosen keys alone.
template <typename Attention>
Operation attention_to_choice(const Attention& attention) {
  return [=, first = some_runs(70, 33), second = some_runs(70, 70),
          chosen = some_choice(70, 70)](const Tensors& in) {
    return Tensors{attention(in[0], {in[1], in[2], first}, {in[3], in[4], second, chosen},
                             {.scale = 0.25, .sinks = in[5]})};
  };
}

TEST(TwoPartAttention, SinksAndChosenKeysAreInTheSoftmax) {
  at::set_num_threads(1);
  Tensors in = two_parts(at::kDouble);
  in.push_back(Numbers(5).normal({4}).to(at::kDouble));
  const Tensors truth =
      differentiate(attention_to_choice(two_part_attention_reference), in, at::kDouble);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const Tensors found = differentiate(attention_to_choice(two_part_attention), in, dtype);
    for (size_t i = 0; i < truth.size(); ++i) {
      EXPECT_LE(relative_error(found[i], truth[i]), dtype == at::kDouble ? 1e-12 : 2e-6) << i;
    }
  }
}

TEST(TwoPartAttention, ASecondPartMayHaveNoKeys) {
  at::set_num_threads(1);
  const Tensors all = two_parts(at::kDouble);
  const at::Tensor runs = some_runs(70, 33);
  const at::Tensor none = at::zeros({2, 70, 2}, at::kLong);
  const auto attend = [&](auto attention) {
    return [=](const Tensors& in) {
      const at::Tensor nothing = in[1].narrow(1, 0, 0);
      return Tensors{attention(in[0], {in[1], in[2], runs}, {nothing, nothing, none},
                               {.scale = 0.25, .sinks = in[3]})};
    };
  };
  const Tensors in = {all[0], all[1], all[2], Numbers(5).normal({4}).to(at::kDouble)};
  const Tensors truth = differentiate(attend(two_part_attention_reference), in, at::kDouble);
  const Tensors found = differentiate(attend(two_part_attention), in, at::kDouble);
  for (size_t i = 0; i < truth.size(); ++i) {
    EXPECT_LE(relative_error(found[i], truth[i]), 1e-12) << i;
  }
}

TEST(ExpectedEmbedding, IsTheSoftmaxOfTheLogitsTimesTheTable) {
  at::set_num_threads(1);
  Numbers numbers(8);
  const at::Tensor hidden = numbers.normal({700, 12});  // more than one chunk
  const at::Tensor weight = numbers.normal({30, 12});
  const Operation plain = [](const Tensors& in) {
    const at::Tensor logits = at::tanh(at::matmul(in[0].detach(), in[1].detach().t()) / 5.0) * 5.0;
    return Tensors{at::matmul(logits.softmax(-1), in[1]) * 3.0};
  };
  const Operation chunked = [](const Tensors& in) {
    return Tensors{expected_embedding(in[0], in[1], {.softcap = 5.0, .scale = 3.0})};
  };
  const Tensors truth = differentiate(plain, {hidden, weight}, at::kDouble);
  const Tensors found = differentiate(chunked, {hidden, weight}, at::kFloat);
  for (size_t i = 0; i < truth.size(); ++i) {
    EXPECT_LE(relative_error(found[i], truth[i]), 2e-6) << i;
  }
}

}  // namespace
}  // namespace automodel::kernels
