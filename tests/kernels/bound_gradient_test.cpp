#include "kernels/base/bound_gradient.h"

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>

#include "core/text.h"
#include "kernels/differentiation.h"
#include "kernels/layers/embedding.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/products/linear.h"
#include "support/allocation_counter.h"

namespace automodel::kernels {
namespace {

constexpr int64_t kTokens = 300, kIn = 64, kOut = 96;
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16};

/// A layer of which `weight` is [kOut, kIn], or [kIn, kOut] where it is transposed; its gradient
/// has memory.
struct Layer {
  at::Tensor x, weight, before;
  bool is_transposed;

  Layer(at::ScalarType dtype, bool is_transposed) : is_transposed(is_transposed) {
    Numbers numbers(3);
    x = numbers.normal({kTokens, kIn}).to(dtype);
    weight = (is_transposed ? numbers.normal({kIn, kOut}) : numbers.normal({kOut, kIn}))
                 .to(dtype)
                 .requires_grad_();
    before = numbers.normal(weight.sizes()).to(dtype);
    weight.mutable_grad() = before.clone();
  }

  at::Tensor out() const { return linear(x, is_transposed ? weight.t() : weight, at::Tensor()); }
  at::Tensor loss() const { return out().sum(); }
  /// Of the weight, by loss(): every row, or column, is the sum of the tokens.
  at::Tensor gradient() const {
    const at::Tensor sum = x.to(at::kDouble).sum(0);
    return is_transposed ? sum.unsqueeze(1).expand({kIn, kOut}) : sum.expand({kOut, kIn});
  }
  void expect_added(double times) const {
    const at::Tensor truth = before.to(at::kDouble) + times * gradient();
    const bool is_rounded = weight.scalar_type() == at::kBFloat16;
    EXPECT_LE(relative_error(weight.grad(), truth), is_rounded ? 4e-3 : 1e-6);
  }
};

template <typename Body>
void for_all_layers(const Body& body) {
  for (const at::ScalarType dtype : kTypes) {
    for (const bool is_transposed : {false, true}) {
      SCOPED_TRACE(cat(c10::toString(dtype), is_transposed ? " transposed" : ""));
      body(Layer(dtype, is_transposed));
    }
  }
}

TEST(BoundGradient, GetsTheProductWithoutMemoryOfItsSize) {
  for_all_layers([](const Layer& layer) {
    const void* memory = layer.weight.grad().data_ptr();
    const at::Tensor loss = layer.loss();
    const auto counter = std::make_shared<test::AllocationCounter>();
    {
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
      at::set_num_threads(1);
      loss.backward();
    }
    EXPECT_EQ(layer.weight.grad().data_ptr(), memory);
    layer.expect_added(1);
    // The gradient of `out`, which has no other memory, and what products work in.
    const Layer free(layer.weight.scalar_type(), layer.is_transposed);
    free.weight.mutable_grad() = at::Tensor();
    const at::Tensor other = free.loss();
    const auto more = std::make_shared<test::AllocationCounter>();
    {
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, more);
      other.backward();
    }
    EXPECT_LE(counter->live(), more->live() - static_cast<int64_t>(layer.weight.nbytes()));
  });
}

TEST(BoundGradient, IsFollowedByTheHooksOfTheAccumulation) {
  for_all_layers([](const Layer& layer) {
    int64_t num_calls = 0;
    const auto accumulator = torch::autograd::impl::grad_accumulator(layer.weight);
    accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [&](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
          num_calls += 1;
          layer.expect_added(2);  // both uses of the weight
          return outputs;
        }));
    (layer.loss() + layer.loss()).backward();
    EXPECT_EQ(num_calls, 1);
  });
}

TEST(BoundGradient, IsLeftAloneWhereItIsNotWhatWasAskedFor) {
  for_all_layers([](const Layer& layer) {
    const at::Tensor given = torch::autograd::grad({layer.loss()}, {layer.weight}).at(0);
    EXPECT_LE(relative_error(given, layer.gradient()), 4e-3);
    EXPECT_TRUE(at::equal(layer.weight.grad(), layer.before));
  });
}

TEST(BoundGradient, IsLeftToAutogradUnderAHookOfTheWeight) {
  for_all_layers([](const Layer& layer) {
    layer.weight.register_hook([](const at::Tensor& gradient) { return gradient * 3; });
    layer.loss().backward();
    layer.expect_added(3);
  });
}

TEST(BoundGradient, IsLeftToAutogradInAGraphOfTheBackwardPass) {
  for_all_layers([](const Layer& layer) {
    const at::Tensor earlier = layer.weight.grad();
    layer.loss().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    layer.expect_added(1);
    EXPECT_TRUE(at::equal(earlier, layer.before));  // autograd makes a new sum
  });
}

/// The loss by a head whose weight is the table of its input's embedding too, times `scale`.
at::Tensor tied_loss(const at::Tensor& table, double scale) {
  const at::Tensor ids = at::arange(50, at::kLong).mul(7).remainder(40);
  const at::Tensor labels = at::arange(50, at::kLong).mul(5);
  const at::Tensor hidden = kernels::embedding(table, ids);
  return linear_cross_entropy(hidden, table, labels, {.divisor = 3}) * scale;
}

/// Both uses of a tied table add to its gradient's memory, and autograd adds nothing of its size.
TEST(BoundGradient, GetsWhatAHeadAndAnEmbeddingAdd) {
  for (const double scale : {1.0, 0.5}) {
    for (const at::ScalarType dtype : kTypes) {
      SCOPED_TRACE(cat(c10::toString(dtype), " times ", scale));
      Numbers numbers(6);
      const at::Tensor table = numbers.normal({4096, 16}).to(dtype).requires_grad_();
      const at::Tensor before = numbers.normal({4096, 16}).to(dtype);
      table.mutable_grad() = before.clone();
      const at::Tensor exact = table.detach().to(at::kDouble).requires_grad_();
      {
        const PlainPathScope plain;
        tied_loss(exact, scale).backward();
      }
      const at::Tensor loss = tied_loss(table, scale);
      const void* memory = table.grad().data_ptr();
      at::set_num_threads(1);
      const auto counter = std::make_shared<test::AllocationCounter>();
      {
        const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
        loss.backward();
      }
      EXPECT_EQ(table.grad().data_ptr(), memory);
      const at::Tensor change = table.grad().to(at::kDouble) - before.to(at::kDouble);
      EXPECT_LE(relative_error(table.grad(), before.to(at::kDouble) + exact.grad()),
                dtype == at::kBFloat16 ? 4e-3 : 1e-6);
      EXPECT_LE(relative_error(change, exact.grad()), dtype == at::kBFloat16 ? 0.1 : 1e-5);
      EXPECT_LT(counter->peak(), static_cast<int64_t>(table.nbytes()) / 4);
    }
  }
}

/// A part of a weight is not the weight.
TEST(BoundGradient, IsNotThatOfAPart) {
  for (const at::ScalarType dtype : kTypes) {
    const Layer layer(dtype, false);
    linear(layer.x, layer.weight.narrow(0, 0, 10), at::Tensor()).sum().backward();
    const at::Tensor change = layer.weight.grad().to(at::kDouble) - layer.before.to(at::kDouble);
    EXPECT_LE(relative_error(change.narrow(0, 0, 10), layer.gradient().narrow(0, 0, 10)), 1e-2);
    EXPECT_TRUE(change.narrow(0, 10, kOut - 10).eq(0).all().item<bool>());
  }
}

}  // namespace
}  // namespace automodel::kernels
