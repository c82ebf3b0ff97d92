#include "kernels/base/result_keeper.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/attention/attention.h"
#include "kernels/products/linear.h"

namespace automodel::kernels {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Remembers what was computed; gives `given` away, if it is set.
class Recorder final : public ResultKeeper {
 public:
  std::optional<Tensors> take(ResultKind) override { return given; }
  void computed(ResultKind kind, const Tensors& results) override {
    kinds.push_back(kind);
    last = results;
  }

  std::optional<Tensors> given;
  std::vector<ResultKind> kinds;
  Tensors last;
};

at::Tensor wave(at::IntArrayRef sizes, double phase) {
  int64_t numel = 1;
  for (const int64_t size : sizes) numel *= size;
  return at::sin(at::arange(numel, at::kFloat) + phase).view(sizes).requires_grad_();
}

TEST(ResultKeeperTest, AProductThatIsTakenIsNotComputedAndHasTheSameGradients) {
  const at::Tensor x = wave({2, 5, 7}, 0), weight = wave({3, 7}, 1), bias = wave({3}, 2);
  Recorder first;
  const ResultKeeperScope keeps(first);
  linear(x, weight, bias).pow(2).sum().backward();
  ASSERT_EQ(first.kinds, std::vector<ResultKind>({ResultKind::kMatrixProduct}));
  const Tensors wanted = {x.grad().clone(), weight.grad().clone(), bias.grad().clone()};
  for (const at::Tensor& input : {x, weight, bias}) at::Tensor(input).mutable_grad().reset();

  Recorder second;
  second.given = first.last;
  const ResultKeeperScope takes(second);
  linear(x, weight, bias).pow(2).sum().backward();
  EXPECT_TRUE(second.kinds.empty());
  EXPECT_TRUE(at::equal(x.grad(), wanted[0]));
  EXPECT_TRUE(at::equal(weight.grad(), wanted[1]));
  EXPECT_TRUE(at::equal(bias.grad(), wanted[2]));
}

TEST(ResultKeeperTest, AttentionThatIsTakenIsNotComputedAndHasTheSameGradients) {
  const at::Tensor q = wave({1, 9, 4, 8}, 0), k = wave({1, 9, 2, 8}, 1), v = wave({1, 9, 2, 8}, 2);
  Recorder first;
  const ResultKeeperScope keeps(first);
  causal_attention(q, k, v, {}).out.pow(2).sum().backward();
  ASSERT_EQ(first.kinds, std::vector<ResultKind>({ResultKind::kAttention}));
  ASSERT_EQ(first.last.size(), 2u);
  const Tensors wanted = {q.grad().clone(), k.grad().clone(), v.grad().clone()};
  for (const at::Tensor& input : {q, k, v}) at::Tensor(input).mutable_grad().reset();

  Recorder second;
  second.given = first.last;
  const ResultKeeperScope takes(second);
  causal_attention(q, k, v, {}).out.pow(2).sum().backward();
  EXPECT_TRUE(second.kinds.empty());
  EXPECT_TRUE(at::equal(q.grad(), wanted[0]));
  EXPECT_TRUE(at::equal(k.grad(), wanted[1]));
  EXPECT_TRUE(at::equal(v.grad(), wanted[2]));
}

TEST(ResultKeeperTest, AScopeEndsWithItsLifeAndTheOuterOneIsBack) {
  const at::Tensor x = wave({2, 2}, 0);
  Recorder outer, inner;
  {
    const ResultKeeperScope outer_scope(outer);
    {
      const ResultKeeperScope inner_scope(inner);
      linear(x, x, at::Tensor());
    }
    linear(x, x, at::Tensor());
  }
  linear(x, x, at::Tensor());
  EXPECT_EQ(inner.kinds.size(), 1u);
  EXPECT_EQ(outer.kinds.size(), 1u);
}

}  // namespace
}  // namespace automodel::kernels
