#include "kernels/cpu/loops.h"
#include "core/text.h"

#include <c10/util/BFloat16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "kernels/base/dynamic_codes.h"
#include "kernels/cpu/kind.h"

namespace automodel::kernels::cpu {
namespace {

using Floats = std::vector<float>;

/// Every table that this CPU can run.
std::vector<const LoopTable*> tables() {
  std::vector<const LoopTable*> all = {&baseline_loops()};
  if (best_kind() >= CpuKind::kAvx2) all.push_back(&avx2_loops());
  if (best_kind() >= CpuKind::kAvx512) all.push_back(&avx512_loops());
  if (has_fast_dot_products(best_kind(), is_intel())) all.push_back(&avx512_bf16_loops());
  if (best_kind() >= CpuKind::kAmx) all.push_back(&amx_loops());
  return all;
}

/// Lengths around every vector width.
constexpr int64_t kLengths[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 100};

/// Normal numbers that are the same in every run.
class Numbers final {
 public:
  Floats operator()(int64_t count, float scale = 1.0f) {
    Floats values(static_cast<size_t>(count));
    for (float& value : values) value = scale * distribution_(engine_);
    return values;
  }

 private:
  std::mt19937 engine_{17};
  std::normal_distribution<float> distribution_;
};

/// |x - y| <= 2e-6 |y| in the L2 norm: the order of sums and fused multiply-adds differ.
void expect_close(const Floats& x, const Floats& y) {
  ASSERT_EQ(x.size(), y.size());
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += std::pow(static_cast<double>(x[i]) - y[i], 2);
    size += std::pow(static_cast<double>(y[i]), 2);
  }
  EXPECT_LE(std::sqrt(error), 2e-6 * std::sqrt(size) + 1e-30);
}

/// Compares what `loop` (a table and a length to several arrays) gives with every table.
template <typename Loop>
void expect_tables_agree(const Loop& loop) {
  for (const LoopTable* table : tables()) {
    for (const int64_t length : kLengths) {
      SCOPED_TRACE(std::string(table->isa) + " of length " + std::to_string(length));
      const std::vector<Floats> actual = loop(*table, length);
      const std::vector<Floats> expected = loop(baseline_loops(), length);
      for (size_t i = 0; i < expected.size(); ++i) {
        SCOPED_TRACE("array " + std::to_string(i));
        expect_close(actual[i], expected[i]);
      }
    }
  }
}

Floats zeros(int64_t count) {
  return Floats(static_cast<size_t>(count), 0.0f);
}

/// Of a lesser one where AUTOMODEL_CPU names it.
TEST(Loops, AreThoseOfTheWidestInstructionSetOfThisCpu) {
  const char* const named = std::getenv("AUTOMODEL_CPU");
  EXPECT_STREQ(loops().isa, named != nullptr ? named : tables().back()->isa);
}

TEST(Loops, AgreeOnRmsForward) {
  for (const bool has_residual : {false, true}) {
    expect_tables_agree([=](const LoopTable& table, int64_t dim) {
      Numbers numbers;
      const Floats x = numbers(3 * dim), residual = numbers(3 * dim), w = numbers(dim);
      Floats sum = zeros(3 * dim), y = zeros(3 * dim), rstd = zeros(3);
      table.float32.rms_forward(x.data(), has_residual ? residual.data() : nullptr,
                                has_residual ? sum.data() : nullptr, w.data(), y.data(),
                                rstd.data(), 3, dim, 1e-6f, has_residual);
      return std::vector<Floats>{sum, y, rstd};
    });
  }
}

TEST(Loops, AgreeOnRmsBackward) {
  for (const bool has_sum : {false, true}) {
    expect_tables_agree([=](const LoopTable& table, int64_t dim) {
      Numbers numbers;
      const Floats dy = numbers(3 * dim), x = numbers(3 * dim), w = numbers(dim),
                   d_sum = numbers(3 * dim);
      const Floats rstd = {0.7f, 1.1f, 0.9f};
      Floats dx = zeros(3 * dim), dw = numbers(dim);
      table.float32.rms_backward(dy.data(), x.data(), w.data(), rstd.data(),
                                 has_sum ? d_sum.data() : nullptr, dx.data(), dw.data(), 3, dim,
                                 has_sum);
      return std::vector<Floats>{dx, dw};
    });
  }
}

TEST(Loops, AgreeOnGatedActivations) {
  for (const int act : {0, 1}) {
    expect_tables_agree([=](const LoopTable& table, int64_t half) {
      Numbers numbers;
      const Floats gate_up = numbers(6 * half, 3.0f), d_out = numbers(3 * half);
      Floats out = zeros(3 * half), d_gate_up = zeros(6 * half);
      table.float32.gated_forward(gate_up.data(), out.data(), 3, half, act);
      table.float32.gated_backward(d_out.data(), gate_up.data(), d_gate_up.data(), 3, half, act);
      return std::vector<Floats>{out, d_gate_up};
    });
  }
}

TEST(Loops, AgreeOnLayerNorms) {
  for (const bool has_more : {false, true}) {  // a residual and a bias
    expect_tables_agree([=](const LoopTable& table, int64_t length) {
      const int64_t dim = length + 1;  // one column has no spread
      Numbers numbers;
      const Floats x = numbers(3 * dim), residual = numbers(3 * dim), w = numbers(dim),
                   b = numbers(dim), dy = numbers(3 * dim), d_sum = numbers(3 * dim);
      Floats sum = x, y = zeros(3 * dim), moments = zeros(6), dx = zeros(3 * dim),
             d_weights = numbers(2 * dim);
      table.float32.layer_forward(
          x.data(), has_more ? residual.data() : nullptr, has_more ? sum.data() : nullptr, w.data(),
          has_more ? b.data() : nullptr, y.data(), moments.data(), 3, dim, 0.1f);
      table.float32.layer_backward(dy.data(), sum.data(), w.data(), moments.data(),
                                   has_more ? d_sum.data() : nullptr, dx.data(), d_weights.data(),
                                   3, dim);
      return std::vector<Floats>{sum, y, moments, dx, d_weights};
    });
  }
}

TEST(Loops, AgreeOnActivations) {
  for (const int act : {0, 1, 2}) {
    expect_tables_agree([=](const LoopTable& table, int64_t count) {
      Numbers numbers;
      const Floats x = numbers(count, 3.0f);
      Floats out = zeros(count), gradient = numbers(count);
      table.float32.activate(x.data(), out.data(), count, act);
      table.float32.activate_backward(gradient.data(), x.data(), gradient.data(), count, act);
      return std::vector<Floats>{out, gradient};
    });
  }
}

template <typename T>
bool have_same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

/// A norm that backward makes again has the bits of forward's.
template <typename T>
void expect_norms_made_again(const LoopTable& table, const RowLoops<T>& loops,
                             std::vector<T> (*held)(const Floats&)) {
  for (const int64_t dim : kLengths) {
    SCOPED_TRACE(cat(table.isa, " of length ", dim));
    Numbers numbers;
    const std::vector<T> x = held(numbers(3 * dim)), w = held(numbers(dim)), b = held(numbers(dim));
    std::vector<T> out(x), again(x);
    Floats scales = zeros(3), moments = zeros(6);
    loops.rms_forward(x.data(), nullptr, nullptr, w.data(), out.data(), scales.data(), 3, dim,
                      1e-6f, true);
    loops.rms_again(x.data(), w.data(), scales.data(), again.data(), 3, dim, true);
    EXPECT_TRUE(have_same_bits(again, out));
    for (const T* bias : {static_cast<const T*>(nullptr), b.data()}) {
      loops.layer_forward(x.data(), nullptr, nullptr, w.data(), bias, out.data(), moments.data(), 3,
                          dim, 1e-5f);
      loops.layer_again(x.data(), w.data(), bias, moments.data(), again.data(), 3, dim);
      EXPECT_TRUE(have_same_bits(again, out));
    }
  }
}

TEST(Loops, AgreeOnHeads) {
  for (const bool has_norm : {false, true}) {
    expect_tables_agree([=](const LoopTable& table, int64_t half) {
      const int64_t dim = 2 * half + 3;  // three dims do not turn
      Numbers numbers;
      const Floats x = numbers(dim), w = numbers(dim), cos = numbers(half), sin = numbers(half);
      const Floats d_out = numbers(dim);
      Floats out = zeros(dim), scratch = zeros(dim), dx = zeros(dim), dw = numbers(dim);
      const float* weight = has_norm ? w.data() : nullptr;
      const float rstd = table.float32.head_forward(x.data(), weight, cos.data(), sin.data(),
                                                    out.data(), dim, half, 1e-6f, true);
      table.float32.head_backward(d_out.data(), x.data(), weight, cos.data(), sin.data(), rstd,
                                  scratch.data(), dx.data(), dw.data(), dim, half, true);
      return std::vector<Floats>{out, {rstd}, scratch, dx, dw};
    });
  }
}

TEST(Loops, AgreeOnSoftmax) {
  for (const float cap : {0.0f, 4.0f}) {
    expect_tables_agree([=](const LoopTable& table, int64_t count) {
      const int64_t begin = 2, end = begin + count, width = end + 3;
      Numbers numbers;
      Floats scores = numbers(width, 3.0f), again = scores, grads = numbers(width);
      const float lse = table.softmax_row(scores.data(), begin, end, width, cap);
      Floats known = again, grads_of_known = grads;
      table.softmax_backward_row(again.data(), grads.data(), begin, end, width, lse, 0.3f, 0.5f,
                                 cap, false);
      table.expected_row(known.data(), grads_of_known.data(), begin, end, lse, cap);
      table.softmax_backward_row(known.data(), grads_of_known.data(), begin, end, width, lse, 0.3f,
                                 0.5f, cap, true);
      EXPECT_EQ(known, again);
      EXPECT_EQ(grads_of_known, grads);
      return std::vector<Floats>{scores, {lse}, again, grads};
    });
  }
}

TEST(Loops, AgreeOnDroppedRowsAndExpectedGradients) {
  const DropoutStream dropout{0x123456789ABCDEF, 0xFEDCBA987654321, 1 << 22, 1.5f};
  for (const float cap : {0.0f, 4.0f}) {
    expect_tables_agree([=](const LoopTable& table, int64_t count) {
      Numbers numbers;
      Floats scores = numbers(count);
      Floats grads = numbers(count);
      table.float32.drop(dropout, (uint64_t{1} << 34) - 77, grads.data(), grads.data(), count);
      const float sum = table.expected_row(scores.data(), grads.data(), 0, count, 1.0f, cap);
      return std::vector<Floats>{grads, {sum}};
    });
  }
}

TEST(Loops, AgreeOnCrossEntropy) {
  for (const float cap : {0.0f, 4.0f}) {
    for (const float logit_scale : {1.0f, 0.5f}) {
      expect_tables_agree([=](const LoopTable& table, int64_t width) {
        Numbers numbers;
        // Two more logits: with one the loss is 0 and its gradient rounding.
        Floats logits = numbers(width + 2, 3.0f);
        const double loss =
            table.cross_entropy_row(logits.data(), width / 2, width + 2, logit_scale, cap, 0.25f);
        return std::vector<Floats>{logits, {static_cast<float>(loss)}};
      });
    }
  }
}

/// Factors of a step of Adam with decoupled decay.
Floats adam_factors() {
  Floats factors = zeros(kNumAdamFactors);
  factors[kDecay] = 0.99f;
  factors[kBeta1] = 0.9f;
  factors[kOneMinusBeta1] = 0.1f;
  factors[kBeta2] = 0.99f;
  factors[kOneMinusBeta2] = 0.01f;
  factors[kStepSize] = 1e-2f;
  factors[kRootCorrection] = 0.3f;
  factors[kEps] = 1e-8f;
  factors[kGradScale] = 0.5f;
  return factors;
}

TEST(Loops, AgreeOnAdam) {
  for (const bool is_amsgrad : {false, true}) {
    expect_tables_agree([=](const LoopTable& table, int64_t count) {
      Numbers numbers;
      Floats p = numbers(count), m = numbers(count), v = numbers(count), v_max = numbers(count);
      const Floats g = numbers(count);
      for (float& value : v) value = value * value;
      for (float& value : v_max) value = value * value;
      Floats factors = adam_factors();
      factors[kL2] = 0.1f;
      table.adam[0][0][0](p.data(), g.data(), m.data(), v.data(),
                          is_amsgrad ? v_max.data() : nullptr, factors.data(), count);
      return std::vector<Floats>{p, m, v, v_max};
    });
  }
}

TEST(Loops, AgreeOnAdamInEightBits) {
  expect_tables_agree([](const LoopTable& table, int64_t count) {
    Numbers numbers;
    Floats p = numbers(count);
    const Floats g = numbers(count);
    std::vector<uint8_t> m_codes(static_cast<size_t>(count)), v_codes(m_codes);
    for (size_t i = 0; i < m_codes.size(); ++i) {
      m_codes[i] = static_cast<uint8_t>(37 * i);
      v_codes[i] = static_cast<uint8_t>(255 - i);
    }
    Floats absmax = {0.3f, 0.02f};
    const Floats factors = adam_factors();
    table.adam_eight_bit[0][0](p.data(), g.data(), {&dynamic_map(true), m_codes.data(), &absmax[0]},
                               {&dynamic_map(false), v_codes.data(), &absmax[1]}, factors.data(),
                               count);
    const auto values = [](const std::vector<uint8_t>& codes, bool is_signed) {
      Floats found;
      for (const uint8_t code : codes) found.push_back(dynamic_map(is_signed).values[code]);
      return found;
    };
    return std::vector<Floats>{p, absmax, values(m_codes, true), values(v_codes, false)};
  });
}

using Halves = std::vector<Bfloat16>;

Halves rounded(const Floats& x) {
  Halves halves(x.size());
  baseline_loops().round(x.data(), halves.data(), static_cast<int64_t>(x.size()));
  return halves;
}

Floats widened(const Halves& x) {
  Floats floats(x.size());
  baseline_loops().widen(x.data(), floats.data(), static_cast<int64_t>(x.size()));
  return floats;
}

/// A product of matrices of bfloat16 [37, depth] and [depth, 70], inside rows of `stride` numbers.
struct PairsCase {
  int64_t depth;
  bool is_left_transposed, is_right_transposed, has_rows, is_stride_odd;
};

Floats product_of(const LoopTable& table, const PairsCase& c) {
  constexpr int64_t kRows = 37, kColumns = 70;
  const int64_t most = std::max<int64_t>(c.depth, kColumns) + 2;
  const int64_t stride = most + (most % 2 == 1) + (c.is_stride_odd ? 1 : 0);
  std::vector<int64_t> ids(static_cast<size_t>(most));
  for (int64_t i = 0; i < most; ++i) ids[static_cast<size_t>(i)] = most - 1 - i;
  // What no product may read is no number.
  Halves left(static_cast<size_t>(most * stride), {0x7fc0}), right = left;
  Numbers numbers;
  const auto fill = [&](Halves& matrix, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = c.has_rows ? ids[static_cast<size_t>(r)] : r;
      const Halves values = rounded(numbers(columns));
      std::copy(values.begin(), values.end(), matrix.begin() + row * stride);
    }
  };
  fill(left, c.is_left_transposed ? c.depth : kRows, c.is_left_transposed ? kRows : c.depth);
  fill(right, c.is_right_transposed ? kColumns : c.depth,
       c.is_right_transposed ? c.depth : kColumns);
  Floats out = zeros(kRows * kColumns);
  ProductPart part;
  part.a = {left.data(), stride, c.has_rows ? ids.data() : nullptr, c.is_left_transposed, true};
  part.b = {right.data(), stride, c.has_rows ? ids.data() : nullptr, c.is_right_transposed, true};
  part.c = out.data();
  part.c_stride = kColumns;
  part.depth = c.depth;
  part.row_end = kRows;
  part.column_end = kColumns;
  Floats scratch = zeros(table.product_scratch(part));
  table.multiply(part, scratch.data());
  return out;
}

TEST(Loops, AgreeOnProductsOfBfloat16) {
  std::vector<const LoopTable*> all = tables();
  if (best_kind() >= CpuKind::kAvx512Bf16) all.push_back(&avx512_bf16_loops());
  for (const int64_t depth : {1, 2, 31, 64, 65, 1537, 1600}) {
    for (int bits = 0; bits < 16; ++bits) {
      const PairsCase c{depth, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
      const Floats expected = product_of(baseline_loops(), c);
      for (const LoopTable* table : all) {
        SCOPED_TRACE(cat(table->isa, ", depth ", depth, ", case ", bits));
        expect_close(product_of(*table, c), expected);
      }
    }
  }
}

/// The numbers that c10 makes, of all bit patterns of the upper half with some lower halves.
TEST(Loops, RoundToTheNearestBfloat16) {
  for (const LoopTable* table : tables()) {
    for (const uint32_t lower : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      Floats numbers(0x10000);
      for (uint32_t upper = 0; upper < 0x10000; ++upper) {
        numbers[upper] = std::bit_cast<float>(upper << 16 | lower);
      }
      Halves halves(numbers.size());
      table->round(numbers.data(), halves.data(), 0x10000);
      Floats back(numbers.size());
      table->widen(halves.data(), back.data(), 0x10000);
      for (size_t i = 0; i < numbers.size(); ++i) {
        if (std::isnan(numbers[i])) {
          ASSERT_TRUE(std::isnan(back[i])) << table->isa << " " << i << " " << lower;
        } else {
          ASSERT_EQ(halves[i].bits, c10::BFloat16(numbers[i]).x) << table->isa << " " << i;
          ASSERT_EQ(back[i], static_cast<float>(c10::BFloat16(numbers[i])));
        }
      }
    }
  }
}

/// Numbers of two storage types are as near as one rounding of each leaves them.
void expect_near(const Halves& x, const Floats& y) {
  ASSERT_EQ(x.size(), y.size());
  const Floats wide = widened(x);
  double error = 0, size = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    error += std::pow(static_cast<double>(wide[i]) - y[i], 2);
    size += std::pow(static_cast<double>(y[i]), 2);
  }
  EXPECT_LE(std::sqrt(error), 0.004 * std::sqrt(size) + 1e-30);
}

TEST(Loops, MakeForwardsNormsAgainInBackward) {
  for (const LoopTable* table : tables()) {
    expect_norms_made_again<float>(*table, table->float32, [](const Floats& x) { return x; });
    expect_norms_made_again<Bfloat16>(*table, table->bfloat16, rounded);
  }
}

TEST(Loops, OfBfloat16AreThoseOfFloat32Rounded) {
  for (const LoopTable* table : tables()) {
    const RowLoops<float>& wide = table->float32;
    const RowLoops<Bfloat16>& narrow = table->bfloat16;
    for (const int64_t half : kLengths) {
      SCOPED_TRACE(std::string(table->isa) + " of length " + std::to_string(half));
      const int64_t dim = 2 * half + 3, count = 3 * dim;
      Numbers numbers;
      const Halves x = rounded(numbers(count)), w = rounded(numbers(dim)),
                   other = rounded(numbers(count));
      const Floats fx = widened(x), fw = widened(w), fother = widened(other), cos = numbers(half),
                   sin = numbers(half);
      Halves out(x), again(x);
      Floats fout(fx), fagain(fx), dw = zeros(dim), fdw = zeros(dim), rstd = zeros(3),
                                   frstd = zeros(3);
      narrow.rms_forward(x.data(), nullptr, nullptr, w.data(), out.data(), rstd.data(), 3, dim,
                         1e-6f, true);
      wide.rms_forward(fx.data(), nullptr, nullptr, fw.data(), fout.data(), frstd.data(), 3, dim,
                       1e-6f, true);
      expect_near(out, fout);
      expect_close(rstd, frstd);
      narrow.rms_backward(other.data(), x.data(), w.data(), rstd.data(), x.data(), out.data(),
                          dw.data(), 3, dim, true);
      wide.rms_backward(fother.data(), fx.data(), fw.data(), rstd.data(), fx.data(), fout.data(),
                        fdw.data(), 3, dim, true);
      expect_near(out, fout);
      expect_close(dw, fdw);
      Floats moments = zeros(6), fmoments = zeros(6), both = zeros(2 * dim), fboth = both;
      narrow.layer_forward(x.data(), nullptr, nullptr, w.data(), w.data(), out.data(),
                           moments.data(), 3, dim, 0.1f);
      wide.layer_forward(fx.data(), nullptr, nullptr, fw.data(), fw.data(), fout.data(),
                         fmoments.data(), 3, dim, 0.1f);
      expect_near(out, fout);
      expect_close(moments, fmoments);
      narrow.layer_backward(other.data(), x.data(), w.data(), moments.data(), x.data(), out.data(),
                            both.data(), 3, dim);
      wide.layer_backward(fother.data(), fx.data(), fw.data(), moments.data(), fx.data(),
                          fout.data(), fboth.data(), 3, dim);
      expect_near(out, fout);
      expect_close(both, fboth);
      for (const int act : {0, 1, 2}) {
        narrow.activate(x.data(), out.data(), count, act);
        wide.activate(fx.data(), fout.data(), count, act);
        expect_near(out, fout);
        narrow.activate_backward(other.data(), x.data(), again.data(), count, act);
        wide.activate_backward(fother.data(), fx.data(), fagain.data(), count, act);
        expect_near(again, fagain);
      }
      for (const int act : {0, 1}) {
        narrow.gated_forward(x.data(), out.data(), 3, half, act);
        wide.gated_forward(fx.data(), fout.data(), 3, half, act);
        expect_near(out, fout);
        narrow.gated_backward(other.data(), x.data(), again.data(), 3, half, act);
        wide.gated_backward(fother.data(), fx.data(), fagain.data(), 3, half, act);
        expect_near(again, fagain);
      }
      Floats scratch = zeros(dim);
      const float scale = narrow.head_forward(x.data(), w.data(), cos.data(), sin.data(),
                                              out.data(), dim, half, 1e-6f, true);
      wide.head_forward(fx.data(), fw.data(), cos.data(), sin.data(), fout.data(), dim, half, 1e-6f,
                        true);
      expect_near(out, fout);
      narrow.head_backward(other.data(), x.data(), w.data(), cos.data(), sin.data(), scale,
                           scratch.data(), out.data(), dw.data(), dim, half, true);
      wide.head_backward(fother.data(), fx.data(), fw.data(), cos.data(), sin.data(), scale,
                         scratch.data(), fout.data(), fdw.data(), dim, half, true);
      expect_near(out, fout);
      expect_close(dw, fdw);
      narrow.add_row(x.data(), dw.data(), dim);
      wide.add_row(fx.data(), fdw.data(), dim);
      expect_close(dw, fdw);
      EXPECT_NEAR(narrow.dot(x.data(), other.data(), dim), wide.dot(fx.data(), fother.data(), dim),
                  1e-4);
      EXPECT_NEAR(narrow.squares(x.data(), dim), wide.squares(fx.data(), dim), 1e-9);
    }
  }
}

TEST(Loops, GiveZerosAndMinusInfinityForASoftmaxOfNothing) {
  for (const LoopTable* table : tables()) {
    Floats scores = {1.0f, 2.0f, 3.0f};
    EXPECT_EQ(table->softmax_row(scores.data(), 2, 1, 3, 0.0f),
              -std::numeric_limits<float>::infinity());
    EXPECT_EQ(scores, zeros(3));
    Floats probabilities = {1.0f, 2.0f, 3.0f}, grads = probabilities;
    table->softmax_backward_row(probabilities.data(), grads.data(), 2, 1, 3,
                                -std::numeric_limits<float>::infinity(), 0.0f, 1.0f, 0.0f, false);
    EXPECT_EQ(probabilities, zeros(3));
    EXPECT_EQ(grads, zeros(3));
  }
}

// At every place of a row, so that no part of a vectorised maximum or clamp swallows it.
TEST(Loops, ShowNaNAtAnyPlaceOfASoftmaxAndACrossEntropy) {
  constexpr int64_t kWidth = 70;
  for (const LoopTable* table : tables()) {
    for (const float cap : {0.0f, 4.0f}) {
      for (size_t place = 0; place < kWidth; ++place) {
        Floats scores = Numbers()(kWidth);
        scores[place] = std::numeric_limits<float>::quiet_NaN();
        Floats logits = scores;
        EXPECT_TRUE(std::isnan(table->softmax_row(scores.data(), 0, kWidth, kWidth, cap)));
        for (const float probability : scores) EXPECT_TRUE(std::isnan(probability));
        EXPECT_TRUE(
            std::isnan(table->cross_entropy_row(logits.data(), 5, kWidth, 1.0f, cap, 1.0f)));
        for (const float gradient : logits) EXPECT_TRUE(std::isnan(gradient));
      }
    }
  }
}

TEST(Loops, ShowInfinityAtAnyPlaceOfASoftmaxAndACrossEntropy) {
  constexpr int64_t kWidth = 70;
  for (const LoopTable* table : tables()) {
    for (size_t place = 0; place < kWidth; ++place) {
      Floats scores = Numbers()(kWidth);
      scores[place] = std::numeric_limits<float>::infinity();
      Floats logits = scores;
      EXPECT_TRUE(std::isnan(table->softmax_row(scores.data(), 0, kWidth, kWidth, 0.0f)));
      EXPECT_TRUE(std::isnan(scores[place]));
      EXPECT_FALSE(
          std::isfinite(table->cross_entropy_row(logits.data(), 5, kWidth, 1.0f, 0.0f, 1.0f)));
      EXPECT_TRUE(std::isnan(logits[place]));
    }
  }
}

TEST(Loops, ShowRowsOfMinusInfinity) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const LoopTable* table : tables()) {
    Floats scores(40, -kInf);
    Floats logits = scores;
    EXPECT_TRUE(std::isnan(table->softmax_row(scores.data(), 0, 40, 40, 0.0f)));
    EXPECT_FALSE(std::isfinite(table->cross_entropy_row(logits.data(), 5, 40, 1.0f, 0.0f, 1.0f)));
  }
}

TEST(CpuKinds, ALesserKindCanBeNamed) {
  EXPECT_EQ(chosen_kind("", CpuKind::kAvx512), CpuKind::kAvx512);
  EXPECT_EQ(chosen_kind("baseline", CpuKind::kAvx512), CpuKind::kBaseline);
  EXPECT_EQ(chosen_kind("avx512_bf16", CpuKind::kAvx512Bf16), CpuKind::kAvx512Bf16);
  try {
    chosen_kind("avx512", CpuKind::kAvx2);
    FAIL() << "chosen";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "AUTOMODEL_CPU is 'avx512'; this CPU can be: baseline, avx2");
  }
}

/// AMD's cores do dot products of pairs as fast as multiply-adds, Intel's do not.
TEST(CpuKinds, PairsAreMultipliedWhereThatIsFast) {
  for (const CpuKind kind : {CpuKind::kBaseline, CpuKind::kAvx2, CpuKind::kAvx512}) {
    EXPECT_FALSE(has_fast_dot_products(kind, true));
    EXPECT_FALSE(has_fast_dot_products(kind, false));
  }
  EXPECT_FALSE(has_fast_dot_products(CpuKind::kAvx512Bf16, true));
  EXPECT_TRUE(has_fast_dot_products(CpuKind::kAvx512Bf16, false));
  EXPECT_FALSE(has_fast_dot_products(CpuKind::kAmx, true));
}

/// Which table is taken: by the kind of the run.
TEST(CpuKinds, TheLoopsAreThoseOfTheKind) {
  const char* names[] = {"baseline", "avx2", "avx512", is_intel() ? "avx512" : "avx512_bf16",
                         "amx"};
  EXPECT_STREQ(loops().isa, names[static_cast<size_t>(cpu_kind())]);
}

}  // namespace
}  // namespace automodel::kernels::cpu
