#include "comm/shared_memory/reduce.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/text.h"

namespace automodel::comm {
namespace {

using Sources = std::vector<at::Tensor>;

void reduce_into(at::Tensor out, ReduceOp op, const Sources& sources) {
  std::vector<const std::byte*> pointers;
  for (const at::Tensor& source : sources) {
    pointers.push_back(static_cast<const std::byte*>(source.const_data_ptr()));
  }
  reduce_sources(out.scalar_type(), op, static_cast<std::byte*>(out.data_ptr()), pointers,
                 out.numel());
}

at::Tensor reduced(ReduceOp op, const Sources& sources) {
  at::Tensor out = at::empty_like(sources[0]);
  reduce_into(out, op, sources);
  return out;
}

/// Small whole numbers, exact in every dtype.
Sources whole_numbers(at::ScalarType dtype, int num_sources) {
  Sources sources;
  for (int i = 0; i < num_sources; ++i) {
    sources.push_back(((at::arange(2500, at::kLong) * 7 + 3 * i) % 11).to(dtype));
  }
  return sources;
}

at::Tensor wanted(ReduceOp op, const Sources& sources) {
  at::Tensor result = sources[0].clone();
  for (size_t i = 1; i < sources.size(); ++i) {
    if (op == ReduceOp::kMax) {
      result = at::maximum(result, sources[i]);
    } else if (op == ReduceOp::kMin) {
      result = at::minimum(result, sources[i]);
    } else {
      result.add_(sources[i]);
    }
  }
  const auto num_sources = static_cast<int64_t>(sources.size());
  return op == ReduceOp::kAvg ? at::div(result.to(at::kDouble), num_sources).to(result.dtype())
                              : result;
}

TEST(ReduceTest, EveryDtypeAndOperationGivesWhatTensorsGive) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong,
                                     at::kInt, at::kShort, at::kChar, at::kByte}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}) {
      for (const int num_sources : {2, 3, 8}) {
        const Sources sources = whole_numbers(dtype, num_sources);
        EXPECT_TRUE(at::equal(reduced(op, sources), wanted(op, sources)))
            << c10::toString(dtype) << " operation " << static_cast<int>(op) << " of "
            << num_sources;
      }
    }
  }
}

TEST(ReduceTest, TheOutputMayBeAnyOfTheSources) {
  for (const size_t own : {0U, 1U, 2U}) {
    Sources sources = whole_numbers(at::kFloat, 3);
    const at::Tensor sum = wanted(ReduceOp::kSum, sources);
    reduce_into(sources[own], ReduceOp::kSum, sources);
    EXPECT_TRUE(at::equal(sources[own], sum)) << own;
  }
}

TEST(ReduceTest, SumsFloatsInTheSourcesOrder) {
  const at::Tensor big = at::full({3}, 1e8F), small = at::full({3}, 3.0F);
  EXPECT_EQ(reduced(ReduceOp::kSum, {big, -big, small})[0].item<float>(), 3.0F);
  EXPECT_EQ(reduced(ReduceOp::kSum, {small, big, -big})[0].item<float>(), 3.0F + 1e8F - 1e8F);
}

TEST(ReduceTest, Bfloat16IsRoundedOnceToTheNearestEven) {
  const auto of = [](double value) { return at::full({5}, value, at::kBFloat16); };
  // 256 + 1 + 1: each 1 alone is rounded away.
  EXPECT_EQ(reduced(ReduceOp::kSum, {of(256), of(1), of(1)})[0].item<double>(), 258);
  EXPECT_EQ(reduced(ReduceOp::kSum, {of(256), of(1)})[0].item<double>(), 256);
  EXPECT_EQ(reduced(ReduceOp::kSum, {of(258), of(1)})[0].item<double>(), 260);
}

TEST(ReduceTest, NaNWins) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}) {
      const at::Tensor one = at::full({9}, 1.0, dtype), none = at::full({9}, nan, dtype);
      EXPECT_TRUE(std::isnan(reduced(op, {one, none})[8].item<double>()));
      EXPECT_TRUE(std::isnan(reduced(op, {none, one, one})[8].item<double>()));
    }
  }
}

TEST(ReduceTest, InfinityStays) {
  const at::Tensor large = at::full({4}, 3e38, at::kBFloat16);
  EXPECT_TRUE(std::isinf(reduced(ReduceOp::kSum, {large, large})[0].item<double>()));
}

}  // namespace
}  // namespace automodel::comm
