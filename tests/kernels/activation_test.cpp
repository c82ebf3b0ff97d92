#include "kernels/layers/activation.h"

#include <cmath>

#include "kernels/differentiation.h"
#include "kernels/layers/layer_reference.h"

namespace automodel::kernels {
namespace {

Operation fused(Activation activation) {
  return [=](const Tensors& in) { return Tensors{gated_activation(in[0], activation)}; };
}

Operation plain(Activation activation) {
  return [=](const Tensors& in) { return Tensors{gated_activation_reference(in[0], activation)}; };
}

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                       Activation::kRelu, Activation::kReluSquared};

/// gate_up [2, 50, 2 I], with gates from the flat ends of the functions to their middle.
Tensors inputs(int64_t half) {
  return {Numbers(3).normal({2, 50, 2 * half}) * at::linspace(0.01, 8, 50).view({1, 50, 1})};
}

TEST(GatedActivation, MatchesThePlainPath) {
  for (const Activation activation : kActivations) {
    for (const int64_t half : {1, 21, 64}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(activation) << " of " << half);
      expect_fused_as_close(fused(activation), plain(activation), inputs(half));
    }
  }
}

TEST(GatedActivation, MatchesThePlainPathNearZeroAndFarOut) {
  for (const Activation activation : kActivations) {
    for (const double scale : {1e-3, 0.1, 30.0, 1000.0}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(activation) << " times " << scale);
      expect_fused_as_close(fused(activation), plain(activation),
                            {Numbers(4).normal({40, 42}) * scale});
    }
  }
}

TEST(BoundedGateUp, CutsTheGateFromAboveAndTheOtherOnBothSides) {
  const at::Tensor x = at::tensor({-3.0, 0.5, 3.0, -3.0, 0.5, 3.0}, at::kDouble).view({1, 6});
  const at::Tensor bounded = at::tensor({-3.0, 0.5, 1.0, -1.0, 0.5, 1.0}, at::kDouble).view({1, 6});
  EXPECT_TRUE(at::equal(bounded_gate_up(x, {1, 1}), bounded));
  EXPECT_TRUE(at::equal(bounded_gate_up(x, {}), x));
  const at::Tensor d = at::arange(1, 7, at::kDouble).view({1, 6});
  const at::Tensor passed = at::tensor({1.0, 2.0, 0.0, 0.0, 5.0, 0.0}, at::kDouble).view({1, 6});
  EXPECT_TRUE(at::equal(bounded_gate_up_backward(d, x, {1, 1}), passed));
  const at::Tensor leaf = x.clone().requires_grad_();
  (bounded_gate_up(leaf, {1, 1}) * d).sum().backward();
  EXPECT_TRUE(at::equal(leaf.grad(), passed));
}

TEST(BoundedGateUp, BoundsBehindSiluAreThoseOfItsResult) {
  EXPECT_EQ(bounds_behind_silu(0), GateBounds());
  for (const double limit : {1e-3, 0.3, 1.0, 2.5, 7.0, 16.0, 1e3}) {
    const GateBounds bounds = bounds_behind_silu(limit);
    EXPECT_EQ(bounds.up, limit);
    EXPECT_NEAR(bounds.gate / (1 + std::exp(-bounds.gate)) / limit, 1, 1e-15) << limit;
  }
  const at::Tensor x = Numbers(5).normal({40, 42}).to(at::kDouble) * 3;
  const at::Tensor found =
      gated_activation(bounded_gate_up(x, bounds_behind_silu(0.7)), Activation::kSilu);
  const at::Tensor gate = at::silu(x.narrow(1, 0, 21)).clamp_max(0.7);
  EXPECT_LE((found - gate * x.narrow(1, 21, 21).clamp(-0.7, 0.7)).abs().max().item<double>(),
            1e-15);
}

TEST(GatedActivation, TakesNoRows) {
  EXPECT_EQ(gated_activation(at::zeros({0, 8}), Activation::kSilu).sizes(),
            at::zeros({0, 4}).sizes());
}

TEST(GatedActivation, HasTheSameBitsOnTwoThreads) {
  for (const Activation activation : kActivations) {
    expect_same_on_two_threads(fused(activation), inputs(21));
  }
}

TEST(GatedActivation, HidesNeitherNaNNorInf) {
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    for (const double poison : kPoisons) {
      for (const int64_t place : {7, 21 + 7}) {  // a gate, an up
        SCOPED_TRACE(testing::Message() << poison << " at " << place);
        expect_nothing_hidden(fused(activation), plain(activation),
                              poisoned(inputs(21), 0, place, poison));
      }
    }
  }
}

Operation fused_alone(Activation activation) {
  return [=](const Tensors& in) { return Tensors{activate(in[0], activation)}; };
}

Operation plain_alone(Activation activation) {
  return [=](const Tensors& in) { return Tensors{activate_reference(in[0], activation)}; };
}

TEST(Activation, MatchesThePlainPathFromZeroToFarOut) {
  for (const Activation activation : kActivations) {
    for (const double scale : {1e-3, 0.1, 1.0, 5.0, 30.0, 1000.0}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(activation) << " times " << scale);
      expect_fused_as_close(fused_alone(activation), plain_alone(activation),
                            {Numbers(5).normal({7, 331}) * scale});
    }
  }
}

TEST(Activation, TakesNumbersThatAreNotContiguousAndNone) {
  const auto turned = [](const Operation& activation) {
    return [activation](const Tensors& in) { return activation({in[0].t()}); };
  };
  expect_fused_as_close(turned(fused_alone(Activation::kGelu)),
                        turned(plain_alone(Activation::kGelu)), {Numbers(6).normal({9, 21})});
  EXPECT_EQ(activate(at::zeros({0, 8}), Activation::kGelu).sizes(), at::zeros({0, 8}).sizes());
}

TEST(Activation, HasTheSameBitsOnTwoThreads) {
  for (const Activation activation :
       {Activation::kGelu, Activation::kGeluTanh, Activation::kReluSquared}) {
    expect_same_on_two_threads(fused_alone(activation), {Numbers(7).normal({70, 1001})});
  }
}

TEST(Activation, HidesNeitherNaNNorInf) {
  for (const Activation activation : kActivations) {
    for (const double poison : {kPoisons[0], kPoisons[1]}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(activation) << " of " << poison);
      expect_nothing_hidden(fused_alone(activation), plain_alone(activation),
                            poisoned({Numbers(8).normal({3, 40})}, 0, 50, poison));
    }
  }
}

}  // namespace
}  // namespace automodel::kernels
