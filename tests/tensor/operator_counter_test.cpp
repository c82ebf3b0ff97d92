#include "tensor/operator_counter.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"

namespace automodel::tensor {
namespace {

TEST(OperatorCounterTest, CopiesTheirBytesAndReadsOfTheHost) {
  const at::Tensor rows = at::arange(12, at::kFloat).view({3, 4});
  const OperatorCounter counter;
  EXPECT_EQ(counter.counts().num_operators, 0);
  const at::Tensor columns = rows.t().contiguous();  // 48 bytes
  EXPECT_EQ(columns.sizes(), (at::IntArrayRef{4, 3}));
  const at::Tensor doubles = rows.to(at::kDouble).clone();  // 96 bytes each
  EXPECT_EQ(doubles.numel(), 12);
  EXPECT_EQ(rows.sum().item<float>(), 66.0F);
  const OperatorCounts counts = counter.counts();
  EXPECT_EQ(counts.num_copies, 3);
  EXPECT_EQ(counts.copied_bytes, 48 + 96 + 96);
  EXPECT_EQ(counts.num_host_reads, 1);
  EXPECT_GT(counts.num_operators, 7);
  EXPECT_TRUE(rows.is_contiguous() && rows.contiguous().is_same(rows));
  EXPECT_EQ(counter.counts().num_copies, 3);
}

TEST(OperatorCounterTest, BackwardPassesCountAndOtherThreadsDoNot) {
  const at::Tensor leaf = at::ones({4, 5}).requires_grad_();
  const OperatorCounter counter;
  const at::Tensor loss = (leaf.t().contiguous() * 2).sum();
  const int64_t forward = counter.counts().num_operators;
  loss.backward();
  EXPECT_GT(counter.counts().num_operators, forward);
  const int64_t so_far = counter.counts().num_operators;
  std::thread([&] { at::ones({3}).add_(1); }).join();
  EXPECT_EQ(counter.counts().num_operators, so_far);
}

TEST(OperatorCounterTest, OneAfterTheOther) {
  for (int i = 0; i < 2; ++i) {
    const OperatorCounter counter;
    EXPECT_EQ(at::empty({3}).numel(), 3);
    EXPECT_EQ(counter.counts().num_copies, 0);
    EXPECT_GE(counter.counts().num_operators, 1);
    EXPECT_LE(counter.counts().num_operators, 3);
    EXPECT_THROW(OperatorCounter(), InternalError);
  }
}

}  // namespace
}  // namespace automodel::tensor
