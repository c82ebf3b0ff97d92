#include "kernels/recurrence/linear_recurrence.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

#include "kernels/differentiation.h"
#include "kernels/recurrence/causal_conv.h"
#include "support/allocation_counter.h"

namespace automodel::kernels {
namespace {

/// Whether the state of the token before reaches token `t`: [B, 1, 1, 1], 1 or 0.
at::Tensor goes_on(const at::Tensor& runs, int64_t t, const at::Tensor& like) {
  if (t == 0) return at::zeros({like.size(0), 1, 1, 1}, like.options());
  if (!runs.defined()) return at::ones({like.size(0), 1, 1, 1}, like.options());
  return runs.select(1, t).eq(runs.select(1, t - 1)).to(like.options()).view({-1, 1, 1, 1});
}

/// Token by token, as the header defines it.
at::Tensor naive_delta_rule(const GatedDeltaInputs& in) {
  const int64_t r = in.v.size(2) / in.k.size(2);
  const auto normed = [&](const at::Tensor& x) {
    const at::Tensor unit = x * (x.square().sum(-1, true) + 1e-6).rsqrt();
    return unit.repeat_interleave(r, 2);
  };
  const at::Tensor q = normed(in.q) / std::sqrt(static_cast<double>(in.q.size(3)));
  const at::Tensor k = normed(in.k);
  at::Tensor state =
      at::zeros({in.v.size(0), in.v.size(2), in.q.size(3), in.v.size(3)}, in.v.options());
  Tensors out;
  for (int64_t t = 0; t < in.v.size(1); ++t) {
    const at::Tensor key = k.select(1, t).unsqueeze(-1);  // [B, N, D, 1]
    at::Tensor decay = in.decay.select(1, t).exp();       // [B, N] or [B, N, D]
    if (decay.dim() == 2) decay = decay.unsqueeze(-1);
    state = state * goes_on(in.runs, t, state) * decay.unsqueeze(-1);
    const at::Tensor known = (state * key).sum(-2);
    const at::Tensor news =
        (in.v.select(1, t) - known) * in.beta.select(1, t).unsqueeze(-1);  // [B, N, E]
    state = state + key * news.unsqueeze(-2);
    out.push_back((state * q.select(1, t).unsqueeze(-1)).sum(-2));
  }
  return at::stack(out, 1);
}

at::Tensor naive_scan(const StateSpaceInputs& in) {
  const int64_t r = in.x.size(2) / in.b.size(2);
  const at::Tensor b = in.b.repeat_interleave(r, 2);
  const at::Tensor c = in.c.repeat_interleave(r, 2);
  at::Tensor state =
      at::zeros({in.x.size(0), in.x.size(2), in.b.size(3), in.x.size(3)}, in.x.options());
  Tensors out;
  for (int64_t t = 0; t < in.x.size(1); ++t) {
    const at::Tensor input = in.x.select(1, t) * in.step.select(1, t).unsqueeze(-1);
    const at::Tensor decay = in.decay.select(1, t).exp().unsqueeze(-1).unsqueeze(-1);
    state = state * goes_on(in.runs, t, state) * decay +
            b.select(1, t).unsqueeze(-1) * input.unsqueeze(-2);
    out.push_back((state * c.select(1, t).unsqueeze(-1)).sum(-2));
  }
  return at::stack(out, 1);
}

at::Tensor naive_conv(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& runs) {
  Tensors out;
  const int64_t num_taps = weight.size(2);
  for (int64_t t = 0; t < x.size(1); ++t) {
    at::Tensor sum = bias.expand({x.size(0), -1});
    for (int64_t lag = 0; lag <= std::min(t, num_taps - 1); ++lag) {
      at::Tensor part = x.select(1, t - lag) * weight.select(1, 0).select(1, num_taps - 1 - lag);
      if (runs.defined()) {
        part = part * runs.select(1, t).eq(runs.select(1, t - lag)).unsqueeze(-1).to(x.options());
      }
      sum = sum + part;
    }
    out.push_back(sum);
  }
  return at::stack(out, 1);
}

/// Runs that end inside chunks, at their borders and after one token, and that lie in several.
at::Tensor some_runs(int64_t length) {
  at::Tensor ids = at::zeros({2, length}, at::kLong);
  for (const int64_t begin : {1, 5, 64, 70, 128}) {
    if (begin < length) ids[0].narrow(0, begin, length - begin) += 1;
  }
  if (length > 3) ids[1].narrow(0, length / 3, length - length / 3) += 7;
  if (length > 100) ids[1].narrow(0, 100, length - 100) += 7;
  return document_runs(ids);
}

struct Shape {
  int64_t length, num_key_heads, num_heads, key_dim, value_dim;
};
constexpr Shape kShapes[] = {{1, 1, 1, 4, 4},   {3, 1, 2, 4, 6},   {64, 2, 2, 8, 4},
                             {65, 2, 4, 8, 12}, {150, 1, 3, 6, 8}, {192, 2, 2, 16, 8}};

Tensors delta_inputs(const Shape& shape) {
  Numbers numbers(5);
  const auto [length, num_key_heads, num_heads, key_dim, value_dim] = shape;
  return {numbers.normal({2, length, num_key_heads, key_dim}),
          numbers.normal({2, length, num_key_heads, key_dim}),
          numbers.normal({2, length, num_heads, value_dim}),
          numbers.normal({2, length, num_heads}).abs() * -0.3,
          numbers.normal({2, length, num_heads}).sigmoid()};
}

/// With a decay for each row of a state.
Tensors row_inputs(const Shape& shape) {
  Tensors inputs = delta_inputs(shape);
  Numbers numbers(8);
  inputs[3] = numbers.normal({2, shape.length, shape.num_heads, shape.key_dim}).abs() * -0.3;
  return inputs;
}

Tensors scan_inputs(const Shape& shape) {
  Numbers numbers(6);
  const auto [length, num_groups, num_heads, state_dim, head_dim] = shape;
  return {numbers.normal({2, length, num_heads, head_dim}),
          numbers.normal({2, length, num_heads}).abs(),
          numbers.normal({2, length, num_heads}).abs() * -0.3,
          numbers.normal({2, length, num_groups, state_dim}),
          numbers.normal({2, length, num_groups, state_dim})};
}

template <typename Kernel>
Operation delta_operation(Kernel kernel, const at::Tensor& runs) {
  return [=](const Tensors& in) {
    return Tensors{kernel(GatedDeltaInputs{in[0], in[1], in[2], in[3], in[4], runs})};
  };
}

template <typename Kernel>
Operation scan_operation(Kernel kernel, const at::Tensor& runs) {
  return [=](const Tensors& in) {
    return Tensors{kernel(StateSpaceInputs{in[0], in[1], in[2], in[3], in[4], runs})};
  };
}

/// In float64 to rounding, in float32 as near as the plain path is or within a rounding of it.
void expect_as_naive(const Operation& operation, const Operation& naive, const Tensors& inputs) {
  at::set_num_threads(1);
  const Tensors exact = differentiate(naive, inputs, at::kDouble);
  const Tensors found = differentiate(operation, inputs, at::kDouble);
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_LE(relative_error(found[i], exact[i]), 1e-12) << "tensor " << i;
  }
  expect_as_close(differentiate(operation, inputs, at::kFloat),
                  differentiate(naive, inputs, at::kFloat), exact);
}

TEST(GatedDeltaRule, IsTheRecurrenceOfTokens) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.length);
    for (const at::Tensor& runs : {at::Tensor(), some_runs(shape.length)}) {
      expect_as_naive(delta_operation(gated_delta_rule, runs),
                      delta_operation(naive_delta_rule, runs), delta_inputs(shape));
    }
  }
}

TEST(RowDecays, AreTheRecurrenceOfTokens) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.length);
    for (const at::Tensor& runs : {at::Tensor(), some_runs(shape.length)}) {
      expect_as_naive(delta_operation(gated_delta_rule, runs),
                      delta_operation(naive_delta_rule, runs), row_inputs(shape));
    }
  }
}

TEST(RowDecays, ThatAreAllAlikeAreTheStates) {
  const Tensors whole = delta_inputs({150, 1, 3, 6, 8});
  Tensors rows = whole;
  rows[3] = whole[3].unsqueeze(-1).expand({-1, -1, -1, 6}).contiguous();
  const auto rule = delta_operation(gated_delta_rule, some_runs(150));
  const Tensors wanted = differentiate(rule, whole, at::kDouble);
  const Tensors found = differentiate(rule, rows, at::kDouble);
  EXPECT_LE(relative_error(found[0], wanted[0]), 1e-12);
}

TEST(StateSpaceScan, IsTheRecurrenceOfTokens) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.length);
    for (const at::Tensor& runs : {at::Tensor(), some_runs(shape.length)}) {
      expect_as_naive(scan_operation(state_space_scan, runs), scan_operation(naive_scan, runs),
                      scan_inputs(shape));
    }
  }
}

TEST(CausalConv, IsTheSumOverEarlierTokens) {
  for (const int64_t length : {1, 2, 9}) {
    Numbers numbers(7);
    const Tensors inputs{numbers.normal({2, length, 6}), numbers.normal({6, 1, 4}),
                         numbers.normal({6})};
    for (const at::Tensor& runs : {at::Tensor(), some_runs(length)}) {
      const auto with = [&](auto conv) -> Operation {
        return [=](const Tensors& in) { return Tensors{conv(in[0], in[1], in[2], runs)}; };
      };
      expect_as_naive(with(causal_conv), with(naive_conv), inputs);
    }
  }
}

/// Results and gradients of run 1 do not depend on the runs' numbers before and behind it, but for
/// the roundings of sums that cancel.
void expect_runs_apart(const Operation& operation, const Tensors& inputs, const at::Tensor& runs) {
  at::set_num_threads(1);
  Tensors changed;
  const at::Tensor is_kept = runs.eq(1);
  for (const at::Tensor& input : inputs) {
    std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
    sizes[0] = runs.size(0);
    sizes[1] = runs.size(1);
    changed.push_back(at::where(is_kept.view(sizes), input, input * 0.5));
  }
  const Tensors before = differentiate(operation, inputs, at::kDouble);
  const Tensors after = differentiate(operation, changed, at::kDouble);
  const auto rows = is_kept.nonzero_numpy();
  for (size_t i = 0; i < before.size(); ++i) {
    const at::Tensor kept = before[i].index({rows[0], rows[1]});
    EXPECT_LE(relative_error(after[i].index({rows[0], rows[1]}), kept), 1e-13) << "tensor " << i;
    EXPECT_GT(relative_error(after[i], before[i]), 1e-3) << "tensor " << i;
  }
}

TEST(GatedDeltaRule, NoRunSeesAnother) {
  const at::Tensor runs = some_runs(150);
  expect_runs_apart(delta_operation(gated_delta_rule, runs), delta_inputs({150, 1, 2, 8, 8}), runs);
}

TEST(RowDecays, NoRunSeesAnother) {
  const at::Tensor runs = some_runs(150);
  expect_runs_apart(delta_operation(gated_delta_rule, runs), row_inputs({150, 1, 2, 8, 8}), runs);
}

TEST(StateSpaceScan, NoRunSeesAnother) {
  const at::Tensor runs = some_runs(150);
  expect_runs_apart(scan_operation(state_space_scan, runs), scan_inputs({150, 1, 2, 8, 8}), runs);
}

/// Bytes at the fullest moment of forward and backward.
double peak_bytes(const Operation& operation, const Tensors& inputs) {
  const auto counter = std::make_shared<test::AllocationCounter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  differentiate(operation, inputs, at::kFloat);
  return static_cast<double>(counter->peak());
}

TEST(StatesMemory, GrowsWithTheLengthAlone) {
  at::set_num_threads(1);
  const auto growth = [](const Operation& operation, Tensors (*inputs)(const Shape&)) {
    return peak_bytes(operation, inputs({2048, 1, 2, 8, 8})) /
           peak_bytes(operation, inputs({512, 1, 2, 8, 8}));
  };
  EXPECT_NEAR(growth(delta_operation(gated_delta_rule, {}), delta_inputs), 4, 0.1);
  EXPECT_NEAR(growth(delta_operation(gated_delta_rule, {}), row_inputs), 4, 0.1);
  EXPECT_NEAR(growth(scan_operation(state_space_scan, {}), scan_inputs), 4, 0.1);
}

TEST(DocumentRuns, CountChangesAndNotIds) {
  const at::Tensor ids = at::tensor({4, 4, 2, 2, 4, 9}, at::kLong).view({1, 6});
  const at::Tensor wanted = at::tensor({0, 0, 1, 1, 2, 3}, at::kLong).view({1, 6});
  EXPECT_TRUE(at::equal(document_runs(ids), wanted));
  EXPECT_FALSE(document_runs({}).defined());
}

TEST(GatedDeltaRule, StrongDecayStaysFinite) {
  for (Tensors inputs : {delta_inputs({130, 1, 2, 8, 8}), row_inputs({130, 1, 2, 8, 8})}) {
    inputs[3] = at::full_like(inputs[3], -60.0);
    for (const at::Tensor& tensor :
         differentiate(delta_operation(gated_delta_rule, {}), inputs, at::kFloat)) {
      EXPECT_TRUE(is_finite(tensor));
    }
  }
}

/// Where some rows forget at once and others never do, both are as exact as the plain path.
TEST(RowDecays, ThatDifferWidelyStayExact) {
  Tensors inputs = row_inputs({96, 1, 2, 8, 8});
  inputs[3] = at::tensor({-50.0, -1e-6, -20.0, 0.0, -3.0, -1e-3, -90.0, -0.1})
                  .expand_as(inputs[3])
                  .contiguous();
  expect_as_naive(delta_operation(gated_delta_rule, {}), delta_operation(naive_delta_rule, {}),
                  inputs);
}

}  // namespace
}  // namespace automodel::kernels
