#include "kernels/products/expert_mlp.h"

#include <ATen/record_function.h>

#include <cstring>

#include "kernels/differentiation.h"
#include "kernels/host_kernels.h"
#include "kernels/products/expert_rows.h"

namespace automodel::kernels {
namespace {

struct Shape {
  int64_t tokens = 37;
  int64_t chosen = 3;
  int64_t experts = 5;
  int64_t dim = 12;
  int64_t inner = 9;
};

using Mlp = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                           const ExpertWeights&, const ExpertOptions&);

/// Inputs: x, weights, up, down and, when there are six, both biases.
Operation with(Mlp mlp, const at::Tensor& ids, const ExpertOptions& options) {
  return [=](const Tensors& in) {
    ExpertWeights experts{in[2], {}, in[3], {}};
    if (in.size() > 4) {
      experts.up_bias = in[4];
      experts.down_bias = in[5];
    }
    return Tensors{mlp(in[0], ids, in[1], experts, options)};
  };
}

Tensors expert_inputs(const Shape& shape, const ExpertOptions& options, bool has_bias) {
  Numbers numbers(11);
  const int64_t width = options.is_gated ? 2 * shape.inner : shape.inner;
  const auto matrix = [&](int64_t out, int64_t in) {
    const at::Tensor weight = numbers.normal({shape.experts, out, in}) * 0.4;
    return options.is_transposed ? weight.transpose(1, 2).contiguous() : weight;
  };
  Tensors in{numbers.normal({shape.tokens, shape.dim}),
             numbers.normal({shape.tokens, shape.chosen}).abs() + 0.1, matrix(width, shape.dim),
             matrix(shape.dim, shape.inner)};
  if (has_bias) {
    in.push_back(numbers.normal({shape.experts, width}));
    in.push_back(numbers.normal({shape.experts, shape.dim}));
  }
  return in;
}

/// Different experts for each token, one of them never chosen, some choices left out.
at::Tensor chosen_experts(const Shape& shape) {
  at::Tensor ids = at::empty({shape.tokens, shape.chosen}, at::TensorOptions().dtype(at::kLong));
  for (int64_t t = 0; t < shape.tokens; ++t) {
    for (int64_t j = 0; j < shape.chosen; ++j) {
      const int64_t id = (t * 7 + j) % (shape.experts - 1);
      ids[t][j] = t % 6 == 5 && j == 1 ? -1 : id;
    }
  }
  return ids;
}

void expect_as_reference(const ExpertOptions& options, bool has_bias) {
  const Shape shape;
  const at::Tensor ids = chosen_experts(shape);
  expect_fused_as_close(with(expert_mlp, ids, options), with(expert_mlp_reference, ids, options),
                        expert_inputs(shape, options, has_bias));
}

TEST(ExpertMlp, MatchesThePlainPath) {
  expect_as_reference({}, false);
  expect_as_reference({.activation = Activation::kGeluTanh}, false);
}

TEST(ExpertMlp, MatchesThePlainPathWithBiases) {
  expect_as_reference({}, true);
}

TEST(ExpertMlp, MatchesThePlainPathWithoutGate) {
  expect_as_reference({.activation = Activation::kReluSquared, .is_gated = false}, false);
}

TEST(ExpertMlp, MatchesThePlainPathWithTransposedWeightsAndClampedGate) {
  expect_as_reference({.is_transposed = true, .is_clamped = true, .limit = 1.0}, true);
}

TEST(ExpertMlp, MatchesThePlainPathWithBoundedGates) {
  expect_as_reference({.bounds = {0.8, 0.8}}, false);
}

/// The same matrices, gates apart from what they multiply: inputs x, weights, gate, up and down.
Operation with_gates_apart(Mlp mlp, const at::Tensor& ids, const ExpertOptions& options) {
  return [=](const Tensors& in) {
    ExpertWeights experts{in[3], {}, in[4], {}};
    experts.gate = in[2];
    return Tensors{mlp(in[0], ids, in[1], experts, options)};
  };
}

TEST(ExpertMlp, MatchesThePlainPathWithGatesApart) {
  const Shape shape;
  const at::Tensor ids = chosen_experts(shape);
  const Tensors joined = expert_inputs(shape, {}, false);
  const Tensors in{joined[0], joined[1], joined[2].narrow(1, 0, shape.inner).contiguous(),
                   joined[2].narrow(1, shape.inner, shape.inner).contiguous(), joined[3]};
  for (const ExpertOptions& options : {ExpertOptions{}, ExpertOptions{.bounds = {0.9, 0.6}}}) {
    expect_fused_as_close(with_gates_apart(expert_mlp, ids, options),
                          with_gates_apart(expert_mlp_reference, ids, options), in);
  }
  EXPECT_LE((with_gates_apart(expert_mlp, ids, {})(in)[0] - with(expert_mlp, ids, {})(joined)[0])
                .abs()
                .max()
                .item<double>(),
            1e-5);
  expect_same_on_two_threads(with_gates_apart(expert_mlp, ids, {}), in);
}

/// Inputs: x, weights and the adapters' four factors; the experts' own weights are frozen.
Operation with_adapters(Mlp mlp, const at::Tensor& ids, const ExpertOptions& options,
                        const Tensors& frozen) {
  return [=](const Tensors& in) {
    const auto as = [&](const at::Tensor& weight) { return weight.to(in[0].scalar_type()); };
    ExpertWeights experts{as(frozen[0]), {}, as(frozen[1]), {}};
    if (frozen.size() > 2) {
      experts.up_bias = as(frozen[2]);
      experts.down_bias = as(frozen[3]);
    }
    experts.lora = {in[2], in[3], in[4], in[5], 1.5};
    return Tensors{mlp(in[0], ids, in[1], experts, options)};
  };
}

struct AdaptedInputs {
  Tensors trained;
  Tensors frozen;
};

AdaptedInputs adapted_inputs(const Shape& shape, const ExpertOptions& options, bool has_bias,
                             int64_t rank = 2) {
  const Tensors in = expert_inputs(shape, options, has_bias);
  Numbers numbers(12);
  const int64_t width = options.is_gated ? 2 * shape.inner : shape.inner;
  AdaptedInputs inputs{{in[0], in[1], numbers.normal({shape.experts, rank, shape.dim}),
                        numbers.normal({shape.experts, width, rank}),
                        numbers.normal({shape.experts, rank, shape.inner}),
                        numbers.normal({shape.experts, shape.dim, rank})},
                       {in.begin() + 2, in.end()}};
  for (size_t i = 2; i < 6; ++i) inputs.trained[i] = inputs.trained[i] * 0.3;
  return inputs;
}

TEST(ExpertMlp, AdaptersMatchThePlainPath) {
  const Shape shape;
  const at::Tensor ids = chosen_experts(shape);
  const std::vector<std::pair<ExpertOptions, bool>> kinds = {
      {{}, false},
      {{}, true},
      {{.activation = Activation::kReluSquared, .is_gated = false}, false},
      {{.is_transposed = true, .is_clamped = true, .limit = 1.0}, true}};
  for (const auto& [options, has_bias] : kinds) {
    const AdaptedInputs inputs = adapted_inputs(shape, options, has_bias);
    expect_fused_as_close(with_adapters(expert_mlp, ids, options, inputs.frozen),
                          with_adapters(expert_mlp_reference, ids, options, inputs.frozen),
                          inputs.trained);
  }
}

TEST(ExpertMlp, AdaptersOfGatesApartAreThoseOfJoinedOnes) {
  const Shape shape;
  const at::Tensor ids = chosen_experts(shape);
  const AdaptedInputs inputs = adapted_inputs(shape, {}, false);
  const auto apart = [&](Mlp mlp) {
    return [=, frozen = inputs.frozen](const Tensors& in) {
      const at::Tensor up = frozen[0].to(in[0].scalar_type());
      ExpertWeights experts{up.narrow(1, shape.inner, shape.inner).contiguous(),
                            {},
                            frozen[1].to(in[0].scalar_type()),
                            {}};
      experts.gate = up.narrow(1, 0, shape.inner).contiguous();
      experts.lora = {in[2], in[3], in[4], in[5], 1.5};
      return Tensors{mlp(in[0], ids, in[1], experts, ExpertOptions{})};
    };
  };
  expect_fused_as_close(apart(expert_mlp),
                        with_adapters(expert_mlp_reference, ids, {}, inputs.frozen),
                        inputs.trained);
}

TEST(ExpertMlp, AdaptersAreTheSameOnTwoThreads) {
  const Shape shape;
  const AdaptedInputs inputs = adapted_inputs(shape, {}, true);
  expect_same_on_two_threads(with_adapters(expert_mlp, chosen_experts(shape), {}, inputs.frozen),
                             inputs.trained);
}

TEST(ExpertMlp, IsTheSameOnTwoThreads) {
  const Shape shape;
  const Tensors in = expert_inputs(shape, {}, true);
  expect_same_on_two_threads(with(expert_mlp, chosen_experts(shape), {}), in);
  const at::Tensor uneven = at::zeros({shape.tokens, shape.chosen}, at::kLong);
  uneven.narrow(0, 0, 4).fill_(2);
  expect_same_on_two_threads(with(expert_mlp, uneven, {}), in);
}

/// During its lifetime this thread's products of all experts at once are counted, and memory that
/// nothing has set is full of NaN.
class GroupedProducts final {
 public:
  GroupedProducts() {
    num_calls = 0;
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(count).scopes(
        {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }
  ~GroupedProducts() {
    at::globalContext().setDeterministicAlgorithms(false, false);
    at::removeCallback(handle_);
  }
  GroupedProducts(const GroupedProducts&) = delete;
  GroupedProducts& operator=(const GroupedProducts&) = delete;

  static inline int64_t num_calls = 0;

 private:
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
    num_calls += std::strcmp(function.name(), "aten::_grouped_mm") == 0 ? 1 : 0;
    return nullptr;
  }

  at::CallbackHandle handle_;
};

/// In bfloat16, by as many products of all experts at once, which a device has and the CPU too.
void expect_grouped(const Operation& ours, const Operation& plain, const Tensors& in,
                    int64_t num_products) {
  const device::HostKernelsScope scope(device::host_kernels());
  const GroupedProducts counted;
  expect_fused_as_close(ours, plain, in, at::kBFloat16);
  EXPECT_EQ(GroupedProducts::num_calls, num_products);
}

constexpr Shape kWholeRows{.dim = 16, .inner = 24};

TEST(GroupedExperts, MatchThePlainPath) {
  const at::Tensor ids = chosen_experts(kWholeRows);
  const auto expect_match = [&](const ExpertOptions& options, bool has_bias) {
    expect_grouped(with(expert_mlp, ids, options), with(expert_mlp_reference, ids, options),
                   expert_inputs(kWholeRows, options, has_bias), 6);
  };
  expect_match({}, false);
  expect_match({}, true);
  expect_match({.activation = Activation::kReluSquared, .is_gated = false}, false);
  expect_match({.is_transposed = true, .is_clamped = true, .limit = 1.0}, true);
  expect_match({.bounds = {0.8, 0.8}}, false);
}

TEST(GroupedExperts, MatchThePlainPathWithGatesApart) {
  const at::Tensor ids = chosen_experts(kWholeRows);
  const Tensors joined = expert_inputs(kWholeRows, {}, false);
  const int64_t inner = kWholeRows.inner;
  const Tensors in{joined[0], joined[1], joined[2].narrow(1, 0, inner).contiguous(),
                   joined[2].narrow(1, inner, inner).contiguous(), joined[3]};
  expect_grouped(with_gates_apart(expert_mlp, ids, {}),
                 with_gates_apart(expert_mlp_reference, ids, {}), in, 9);
}

TEST(GroupedExperts, AdaptersMatchThePlainPath) {
  const at::Tensor ids = chosen_experts(kWholeRows);
  for (const bool has_bias : {false, true}) {
    const AdaptedInputs in = adapted_inputs(kWholeRows, {}, has_bias, 8);
    expect_grouped(with_adapters(expert_mlp, ids, {}, in.frozen),
                   with_adapters(expert_mlp_reference, ids, {}, in.frozen), in.trained, 18);
  }
}

/// Rows that do not begin at multiples of 16 bytes go expert by expert, and so does float32.
TEST(GroupedExperts, LeaveTheRestToOthers) {
  const device::HostKernelsScope scope(device::host_kernels());
  const GroupedProducts counted;
  for (const Shape& shape : {Shape{.dim = 12, .inner = 24}, Shape{.dim = 16, .inner = 9}}) {
    Tensors in = expert_inputs(shape, {}, false);
    with(expert_mlp, chosen_experts(shape), {})(in);
    for (at::Tensor& tensor : in) tensor = tensor.to(at::kBFloat16);
    with(expert_mlp, chosen_experts(shape), {})(in);
  }
  Tensors in = expert_inputs(kWholeRows, {}, false);
  with(expert_mlp, chosen_experts(kWholeRows), {})(in);
  device::HostLauncher::has_grouped = false;  // an older device
  for (at::Tensor& tensor : in) tensor = tensor.to(at::kBFloat16);
  with(expert_mlp, chosen_experts(kWholeRows), {})(in);
  device::HostLauncher::has_grouped = true;
  EXPECT_EQ(GroupedProducts::num_calls, 0);
}

TEST(GroupedExperts, ComputeOnlyTheGradientsAskedFor) {
  const device::HostKernelsScope scope(device::host_kernels());
  const GroupedProducts counted;
  Tensors in = expert_inputs(kWholeRows, {}, false);
  for (at::Tensor& tensor : in) tensor = tensor.to(at::kBFloat16);
  in[0].requires_grad_();
  with(expert_mlp, chosen_experts(kWholeRows), {})(in)[0].sum().backward();
  EXPECT_TRUE(at::isfinite(in[0].grad()).all().item<bool>());
  for (size_t i = 1; i < in.size(); ++i) EXPECT_FALSE(in[i].grad().defined());
  EXPECT_EQ(GroupedProducts::num_calls, 4);  // two there, two back
}

TEST(GroupedExperts, TakeNoTokens) {
  const device::HostKernelsScope scope(device::host_kernels());
  const Shape shape{.tokens = 0, .dim = 16, .inner = 24};
  Tensors in = expert_inputs(shape, {}, false);
  for (at::Tensor& tensor : in) tensor = tensor.to(at::kBFloat16).requires_grad_();
  with(expert_mlp, at::empty({0, shape.chosen}, at::kLong), {})(in)[0].sum().backward();
  EXPECT_EQ(in[2].grad().abs().max().item<float>(), 0.0F);
}

TEST(GroupedExperts, TokensWithoutAnExpertGetZeros) {
  const device::HostKernelsScope scope(device::host_kernels());
  const GroupedProducts counted;
  Tensors in = expert_inputs(kWholeRows, {}, true);
  for (at::Tensor& tensor : in) tensor = tensor.to(at::kBFloat16).requires_grad_();
  const at::Tensor ids = at::full({kWholeRows.tokens, kWholeRows.chosen}, -1, at::kLong);
  const at::Tensor out = with(expert_mlp, ids, {})(in)[0];
  EXPECT_EQ(out.abs().max().item<float>(), 0.0F);
  out.sum().backward();
  for (const at::Tensor& tensor : in) EXPECT_EQ(tensor.grad().abs().max().item<float>(), 0.0F);
}

TEST(ExpertMlp, TokensWithoutAnExpertGetZeros) {
  const Shape shape;
  const Tensors in = expert_inputs(shape, {}, false);
  const at::Tensor ids = at::full({shape.tokens, shape.chosen}, -1, at::kLong);
  EXPECT_EQ(with(expert_mlp, ids, {})(in)[0].abs().max().item<float>(), 0.0F);
}

TEST(ExpertMlp, TakesNoTokens) {
  const Shape shape{.tokens = 0};
  const at::Tensor ids = at::empty({0, shape.chosen}, at::kLong);
  Tensors in = expert_inputs(shape, {}, false);
  for (at::Tensor& tensor : in) tensor.requires_grad_();
  const at::Tensor out = with(expert_mlp, ids, {})(in)[0];
  EXPECT_EQ(out.sizes(), at::zeros({0, shape.dim}).sizes());
  out.sum().backward();
  EXPECT_EQ(in[2].grad().abs().max().item<float>(), 0.0F);
}

TEST(ExpertMlp, ComputesOnlyTheGradientsAskedFor) {
  const Shape shape;
  Tensors in = expert_inputs(shape, {}, false);
  in[0].requires_grad_();
  with(expert_mlp, chosen_experts(shape), {})(in)[0].sum().backward();
  EXPECT_TRUE(in[0].grad().defined());
  EXPECT_FALSE(in[2].grad().defined());
}

/// 256 and four ones: each of them is lost in a sum in bfloat16, all four together are not.
TEST(ExpertMlp, ChoicesOfATokenAreAddedUpInFloat32) {
  const auto ones = [](at::IntArrayRef sizes) { return at::ones(sizes, at::kBFloat16); };
  const at::Tensor weights = ones({1, 5});
  weights[0][0] = 256;
  const Tensors in{ones({1, 1}), weights, ones({5, 1, 1}), ones({5, 1, 1})};
  const ExpertOptions options{.activation = Activation::kReluSquared, .is_gated = false};
  const at::Tensor ids = at::arange(5, at::kLong).unsqueeze(0);
  EXPECT_EQ(with(expert_mlp, ids, options)(in)[0].item<float>(), 260.0F);
}

/// Rounded after each addition, the first token's sum would be 1.
TEST(SumRows, RoundsOnce) {
  const at::Tensor rows = at::tensor({1.0F, 1.0F / 256, 1.0F / 256, 3.0F}).view({4, 1});
  const at::Tensor row =
      at::tensor({0, 1, 2, -1, 3, -1, -1, -1, -1}, at::TensorOptions().dtype(at::kLong))
          .view({3, 3});
  const at::Tensor expected = at::tensor({1.0F + 1.0F / 128, 3.0F, 0.0F}).view({3, 1});
  for (const bool is_plain : {false, true}) {
    const PlainPathScope path(is_plain);
    for (const at::ScalarType dtype : kFusedTypes) {
      const at::Tensor sums = sum_rows(rows.to(dtype), row);
      EXPECT_EQ(sums.scalar_type(), dtype);
      EXPECT_TRUE(at::equal(sums, expected.to(dtype))) << dtype << " " << is_plain;
    }
    const at::Tensor none = sum_rows(rows.narrow(0, 0, 0), at::full({2, 3}, -1, at::kLong));
    EXPECT_TRUE(at::equal(none, at::zeros({2, 1})));
  }
}

TEST(ExpertMlp, BFloat16StaysNearFloat32) {
  const Shape shape;
  const at::Tensor ids = chosen_experts(shape);
  const Tensors in = expert_inputs(shape, {}, false);
  Tensors narrow;
  for (const at::Tensor& tensor : in) narrow.push_back(tensor.to(at::kBFloat16));
  const at::Tensor expected = with(expert_mlp, ids, {})(in)[0];
  const at::Tensor ours = with(expert_mlp, ids, {})(narrow)[0];
  EXPECT_EQ(ours.scalar_type(), at::kBFloat16);
  EXPECT_LE((ours.to(at::kFloat) - expected).norm().item<double>(),
            0.02 * expected.norm().item<double>());
}

}  // namespace
}  // namespace automodel::kernels
