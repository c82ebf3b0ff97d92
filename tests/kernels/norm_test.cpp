#include "kernels/layers/norm.h"

#include "kernels/differentiation.h"
#include "kernels/layers/layer_reference.h"

namespace automodel::kernels {
namespace {

Operation fused_norm(const NormOptions& options) {
  return [options](const Tensors& in) { return Tensors{rms_norm(in[0], in[1], options)}; };
}

Operation plain_norm(const NormOptions& options) {
  return
      [options](const Tensors& in) { return Tensors{rms_norm_reference(in[0], in[1], options)}; };
}

Operation fused_add_norm(const NormOptions& options) {
  return [options](const Tensors& in) {
    const auto [sum, norm] = add_rms_norm(in[0], in[1], in[2], options);
    return Tensors{sum, norm};
  };
}

Operation plain_add_norm(const NormOptions& options) {
  return [options](const Tensors& in) {
    const at::Tensor sum = in[0] + in[1];
    return Tensors{sum, rms_norm_reference(sum, in[2], options)};
  };
}

/// x [3, 70, D] and weight [D]: rows in more than one block of the weight's gradient.
Tensors norm_inputs(int64_t dim) {
  Numbers numbers(1);
  return {numbers.normal({3, 70, dim}), numbers.normal({dim})};
}

Tensors add_norm_inputs(int64_t dim) {
  Numbers numbers(2);
  return {numbers.normal({3, 70, dim}), numbers.normal({3, 70, dim}), numbers.normal({dim})};
}

// From two columns on: the gradient of a norm over one is eps / x^2 times its terms, and rounding
// leaves no digit of it on either path.
TEST(RmsNorm, MatchesThePlainPath) {
  for (const int64_t dim : {2, 37, 64}) {
    SCOPED_TRACE(dim);
    expect_fused_as_close(fused_norm({}), plain_norm({}), norm_inputs(dim));
  }
}

TEST(RmsNorm, MatchesThePlainPathWithOneAddedToTheWeight) {
  const NormOptions options{.eps = 1e-5, .adds_one = true};
  expect_fused_as_close(fused_norm(options), plain_norm(options), norm_inputs(37));
}

TEST(RmsNorm, MatchesThePlainPathWhenEpsIsLargerThanTheSquares) {
  Tensors inputs = norm_inputs(48);
  inputs[0] = inputs[0] * 1e-4;
  expect_fused_as_close(fused_norm({}), plain_norm({}), inputs);
}

TEST(RmsNorm, TakesRowsThatAreNotContiguous) {
  const auto transposing = [](const Operation& norm) {
    return [norm](const Tensors& in) { return norm({in[0].transpose(0, 1), in[1]}); };
  };
  expect_fused_as_close(transposing(fused_norm({})), transposing(plain_norm({})), norm_inputs(24));
}

TEST(RmsNorm, TakesNoRows) {
  const at::Tensor x = at::zeros({0, 8});
  EXPECT_EQ(rms_norm(x, at::ones({8}), {}).sizes(), x.sizes());
}

TEST(RmsNorm, HasTheSameBitsOnTwoThreads) {
  expect_same_on_two_threads(fused_norm({}), norm_inputs(37));
}

TEST(RmsNorm, MakesOneWholeRowNaNOfOneNaN) {
  const Tensors inputs = poisoned(norm_inputs(37), 0, 5 * 37 + 3, kPoisons[0]);
  const at::Tensor y = rms_norm(inputs[0], inputs[1], {}).view({-1, 37});
  EXPECT_TRUE(is_nowhere_finite(y[5]));
  EXPECT_TRUE(is_finite(y.narrow(0, 0, 5)));
  EXPECT_TRUE(is_finite(y.narrow(0, 6, y.size(0) - 6)));
}

TEST(RmsNorm, HidesNeitherNaNNorInf) {
  for (const double poison : kPoisons) {
    for (const size_t input : {0, 1}) {
      SCOPED_TRACE(testing::Message() << poison << " in input " << input);
      expect_nothing_hidden(fused_norm({}), plain_norm({}),
                            poisoned(norm_inputs(37), input, 20, poison));
    }
  }
}

// From two columns on, as above; and the weight's gradient of one column is a single number whose
// terms cancel: how near the plain path comes to it is luck, other with other instructions.
TEST(AddRmsNorm, MatchesThePlainPath) {
  for (const bool adds_one : {false, true}) {
    for (const int64_t dim : {2, 37, 64}) {
      SCOPED_TRACE(testing::Message() << dim << (adds_one ? " with one added" : ""));
      const NormOptions options{.eps = 1e-6, .adds_one = adds_one};
      expect_fused_as_close(fused_add_norm(options), plain_add_norm(options), add_norm_inputs(dim));
    }
  }
}

TEST(AddRmsNorm, PassesTheGradientOfTheSumAloneWhenTheNormIsNotUsed) {
  const auto only = [](const Operation& norm, size_t result) {
    return [norm, result](const Tensors& in) { return Tensors{norm(in)[result]}; };
  };
  for (const size_t result : {0, 1}) {
    SCOPED_TRACE(result);
    expect_fused_as_close(only(fused_add_norm({}), result), only(plain_add_norm({}), result),
                          add_norm_inputs(16));
  }
}

TEST(AddRmsNorm, HasTheSameBitsOnTwoThreads) {
  expect_same_on_two_threads(fused_add_norm({}), add_norm_inputs(37));
}

TEST(AddRmsNorm, HidesNeitherNaNNorInf) {
  for (const double poison : kPoisons) {
    for (const size_t input : {0, 1, 2}) {
      SCOPED_TRACE(testing::Message() << poison << " in input " << input);
      expect_nothing_hidden(fused_add_norm({}), plain_add_norm({}),
                            poisoned(add_norm_inputs(37), input, 20, poison));
    }
  }
}

constexpr double kEps = 1e-5;

/// x [.., D], weight and, where there are three inputs, bias.
Tensors fused_layer_norm(const Tensors& in) {
  return {layer_norm(in[0], in[1], in.size() > 2 ? in[2] : at::Tensor(), kEps)};
}

Tensors plain_layer_norm(const Tensors& in) {
  return {layer_norm_reference(in[0], in[1], in.size() > 2 ? in[2] : at::Tensor(), kEps)};
}

Tensors fused_add_layer_norm(const Tensors& in) {
  const auto [sum, norm] = add_layer_norm(in[0], in[1], in[2], in[3], kEps);
  return {sum, norm};
}

Tensors plain_add_layer_norm(const Tensors& in) {
  const at::Tensor sum = in[0] + in[1];
  return {sum, layer_norm_reference(sum, in[2], in[3], kEps)};
}

Tensors layer_norm_inputs(int64_t dim) {
  Numbers numbers(3);
  return {numbers.normal({3, 70, dim}) + 0.5, numbers.normal({dim}), numbers.normal({dim})};
}

Tensors add_layer_norm_inputs(int64_t dim) {
  Numbers numbers(4);
  return {numbers.normal({3, 70, dim}), numbers.normal({3, 70, dim}) + 1, numbers.normal({dim}),
          numbers.normal({dim})};
}

// From three columns on: two are one number and its negative after the norm, whose gradient
// cancels.
TEST(LayerNorm, MatchesThePlainPath) {
  for (const int64_t dim : {3, 37, 64, 768}) {
    SCOPED_TRACE(dim);
    Tensors inputs = layer_norm_inputs(dim);
    expect_fused_as_close(fused_layer_norm, plain_layer_norm, inputs);
    inputs.pop_back();
    expect_fused_as_close(fused_layer_norm, plain_layer_norm, inputs);
    expect_fused_as_close(fused_add_layer_norm, plain_add_layer_norm, add_layer_norm_inputs(dim));
  }
}

TEST(LayerNorm, MatchesThePlainPathOfRowsFarFromZero) {
  Tensors inputs = layer_norm_inputs(37);
  inputs[0] = inputs[0] + 50;
  expect_fused_as_close(fused_layer_norm, plain_layer_norm, inputs, at::kFloat);
}

TEST(LayerNorm, PassesTheGradientOfTheSumAloneWhenTheNormIsNotUsed) {
  const auto only = [](const Operation& norm, size_t result) {
    return [norm, result](const Tensors& in) { return Tensors{norm(in)[result]}; };
  };
  for (const size_t result : {0, 1}) {
    SCOPED_TRACE(result);
    expect_fused_as_close(only(fused_add_layer_norm, result), only(plain_add_layer_norm, result),
                          add_layer_norm_inputs(16));
  }
}

TEST(LayerNorm, TakesNoRowsAndRowsThatAreNotContiguous) {
  const at::Tensor x = at::zeros({0, 8});
  EXPECT_EQ(layer_norm(x, at::ones({8}), at::ones({8}), kEps).sizes(), x.sizes());
  const auto transposing = [](const Operation& norm) {
    return [norm](const Tensors& in) { return norm({in[0].transpose(0, 1), in[1], in[2]}); };
  };
  expect_fused_as_close(transposing(fused_layer_norm), transposing(plain_layer_norm),
                        layer_norm_inputs(24));
}

TEST(LayerNorm, HasTheSameBitsOnTwoThreads) {
  expect_same_on_two_threads(fused_layer_norm, layer_norm_inputs(37));
  expect_same_on_two_threads(fused_add_layer_norm, add_layer_norm_inputs(37));
}

TEST(LayerNorm, HidesNeitherNaNNorInf) {
  for (const double poison : kPoisons) {
    for (const size_t input : {0, 1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << poison << " in input " << input);
      expect_nothing_hidden(fused_add_layer_norm, plain_add_layer_norm,
                            poisoned(add_layer_norm_inputs(37), input, 20, poison));
    }
  }
}

}  // namespace
}  // namespace automodel::kernels
