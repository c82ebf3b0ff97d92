// Products of every instruction set that this CPU has, at the level of memory.

#include <c10/util/BFloat16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/text.h"
#include "kernels/cpu/kind.h"
#include "kernels/cpu/loops.h"

namespace automodel::kernels::cpu {
namespace {

std::vector<const LoopTable*> product_tables() {
  std::vector<const LoopTable*> all = {&baseline_loops()};
  if (best_kind() >= CpuKind::kAvx2) all.push_back(&avx2_loops());
  if (best_kind() >= CpuKind::kAvx512) all.push_back(&avx512_loops());
  if (best_kind() >= CpuKind::kAvx512Bf16) all.push_back(&avx512_bf16_loops());
  if (best_kind() >= CpuKind::kAmx) all.push_back(&amx_loops());
  return all;
}

/// A matrix [rows, columns] inside longer rows of NaN, as float32 or bfloat16, perhaps by columns.
class StoredMatrix final {
 public:
  StoredMatrix(int64_t rows, int64_t columns, bool is_transposed, bool is_bfloat16)
      : rows_(rows), columns_(columns), is_transposed_(is_transposed), is_bfloat16_(is_bfloat16) {
    const size_t count = static_cast<size_t>((is_transposed ? columns : rows) * stride());
    floats_.assign(is_bfloat16 ? 0 : count, std::numeric_limits<float>::quiet_NaN());
    halves_.assign(is_bfloat16 ? count : 0, Bfloat16{0x7fc0});
  }

  void set(int64_t row, int64_t column, float value) {
    const int64_t at = is_transposed_ ? column * stride() + row : row * stride() + column;
    if (is_bfloat16_) {
      halves_.at(static_cast<size_t>(at)).bits = c10::BFloat16(value).x;
    } else {
      floats_.at(static_cast<size_t>(at)) = value;
    }
  }

  double at(int64_t row, int64_t column) const {
    const int64_t at = is_transposed_ ? column * stride() + row : row * stride() + column;
    if (!is_bfloat16_) return floats_.at(static_cast<size_t>(at));
    return std::bit_cast<float>(uint32_t{halves_.at(static_cast<size_t>(at)).bits} << 16);
  }

  template <typename Number>
  void fill(const Number& number) {
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t column = 0; column < columns_; ++column) set(row, column, number());
    }
  }

  ProductOperand operand() const {
    const void* data = is_bfloat16_ ? static_cast<const void*>(halves_.data()) : floats_.data();
    return {data, stride(), nullptr, is_transposed_, is_bfloat16_};
  }

 private:
  int64_t stride() const { return (is_transposed_ ? rows_ : columns_) + 3; }

  int64_t rows_, columns_;
  bool is_transposed_, is_bfloat16_;
  std::vector<float> floats_;
  std::vector<Bfloat16> halves_;
};

std::vector<float> multiply_by(const LoopTable& table, const StoredMatrix& a, const StoredMatrix& b,
                               int64_t rows, int64_t columns, int64_t depth) {
  std::vector<float> out(static_cast<size_t>(rows * columns), -7.0F);
  ProductPart part;
  part.a = a.operand();
  part.b = b.operand();
  part.c = out.data();
  part.c_stride = columns;
  part.depth = depth;
  part.row_end = rows;
  part.column_end = columns;
  std::vector<float> scratch(static_cast<size_t>(table.product_scratch(part)));
  table.multiply(part, scratch.data());
  return out;
}

/// Relative, in the L2 norm, from sums in float64.
double error_of(const std::vector<float>& product, const StoredMatrix& a, const StoredMatrix& b,
                int64_t rows, int64_t columns, int64_t depth) {
  double error = 0, size = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (int64_t i = 0; i < depth; ++i) sum += a.at(row, i) * b.at(i, column);
      error += std::pow(product.at(static_cast<size_t>(row * columns + column)) - sum, 2);
      size += sum * sum;
    }
  }
  return std::sqrt(error / size);
}

/// Float32 beside float32 and beside bfloat16, in all layouts, over the edges of tiles and slabs.
TEST(ProductTables, AreAsNearToFloat64AsTheBaseline) {
  std::mt19937 engine(5);
  std::normal_distribution<float> normal;
  for (const int64_t depth : {1, 16, 17, 33, 513, 1100}) {
    for (int bits = 0; bits < 16; ++bits) {
      const int64_t rows = bits % 2 == 0 ? 37 : 16, columns = bits % 2 == 0 ? 70 : 33;
      StoredMatrix a(rows, depth, (bits & 1) != 0, (bits & 4) != 0);
      StoredMatrix b(depth, columns, (bits & 2) != 0, (bits & 8) != 0);
      a.fill([&] { return normal(engine); });
      b.fill([&] { return normal(engine); });
      const double least = error_of(multiply_by(baseline_loops(), a, b, rows, columns, depth), a, b,
                                    rows, columns, depth);
      for (const LoopTable* table : product_tables()) {
        SCOPED_TRACE(cat(table->isa, ", depth ", depth, ", case ", bits));
        const std::vector<float> product = multiply_by(*table, a, b, rows, columns, depth);
        EXPECT_LE(error_of(product, a, b, rows, columns, depth), 2 * least + 2e-8);
      }
    }
  }
}

TEST(ProductTables, MultiplyFloatsAloneWhereNoPartsAreAllowed) {
  if (best_kind() < CpuKind::kAmx) return;
  std::mt19937 engine(7);
  std::normal_distribution<float> normal;
  for (const bool is_right_bfloat16 : {false, true}) {
    StoredMatrix a(40, 90, false, false), b(90, 50, false, is_right_bfloat16);
    a.fill([&] { return normal(engine); });
    b.fill([&] { return normal(engine); });
    allow_float_parts(false);
    const std::vector<float> plain = multiply_by(amx_loops(), a, b, 40, 50, 90);
    allow_float_parts(true);
    EXPECT_EQ(plain, multiply_by(avx512_loops(), a, b, 40, 50, 90));
    EXPECT_NE(plain, multiply_by(amx_loops(), a, b, 40, 50, 90));
  }
}

/// Numbers of one sign, near each other or of many sizes: what a sum of parts leaves out or rounds
/// must not add up.
TEST(ProductTables, StayNearWhereNumbersHaveOneSign) {
  constexpr int64_t kRows = 40, kColumns = 40, kDepth = 4100;
  std::mt19937 engine(6);
  std::uniform_real_distribution<float> mantissa(1, 2);
  std::uniform_int_distribution<int> exponent(-20, 20);
  for (const bool are_near : {true, false}) {
    StoredMatrix a(kRows, kDepth, false, false), b(kDepth, kColumns, true, false);
    for (StoredMatrix* x : {&a, &b}) {
      x->fill([&] {
        return are_near ? mantissa(engine) - 1 : std::ldexp(mantissa(engine), exponent(engine));
      });
    }
    const auto error = [&](const LoopTable& table) {
      return error_of(multiply_by(table, a, b, kRows, kColumns, kDepth), a, b, kRows, kColumns,
                      kDepth);
    };
    double least = error(baseline_loops());
    if (best_kind() >= CpuKind::kAvx512) least = std::min(least, error(avx512_loops()));
    for (const LoopTable* table : product_tables()) {
      SCOPED_TRACE(cat(table->isa, are_near ? ", near" : ", of many sizes"));
      EXPECT_LE(error(*table), 2 * least);
    }
  }
}

TEST(ProductTables, KeepTheLargestNumbersAndHideNoneThatAreNot) {
  constexpr int64_t kSize = 3;
  constexpr float kLargest = std::numeric_limits<float>::max();
  const float quiet_only_below = std::bit_cast<float>(uint32_t{0x7f800001});
  for (const LoopTable* table : product_tables()) {
    SCOPED_TRACE(table->isa);
    for (const bool is_left : {true, false}) {
      StoredMatrix special(kSize, kSize, false, false), one(kSize, kSize, false, false);
      special.fill([] { return 0.0F; });
      one.fill([] { return 0.0F; });
      for (int64_t i = 0; i < kSize; ++i) one.set(i, i, 0.5F);
      const auto product_with = [&](float value) {
        special.set(1, 1, value);
        return is_left ? multiply_by(*table, special, one, kSize, kSize, kSize)
                       : multiply_by(*table, one, special, kSize, kSize, kSize);
      };
      EXPECT_EQ(product_with(kLargest).at(4), kLargest / 2);
      EXPECT_EQ(product_with(-kLargest).at(4), -kLargest / 2);
      EXPECT_FALSE(std::isfinite(product_with(std::numeric_limits<float>::infinity()).at(4)));
      EXPECT_TRUE(std::isnan(product_with(quiet_only_below).at(4)));
      EXPECT_TRUE(std::isnan(product_with(-std::bit_cast<float>(uint32_t{0x7fffffff})).at(4)));
      EXPECT_EQ(product_with(kLargest).at(0), 0.0F);
    }
  }
}

}  // namespace
}  // namespace automodel::kernels::cpu
