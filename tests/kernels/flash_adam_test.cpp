#include "kernels/optimizer/flash_adam.h"

#include <optional>

#include "core/text.h"
#include "kernels/cpu/kind.h"
#include "kernels/cpu/loops.h"
#include "kernels/differentiation.h"

namespace automodel::kernels {
namespace {

/// Several blocks of threads, and a last group of a remainder of every vector width.
constexpr int64_t kNumel = 3 * (1 << 14) + 5 * 32 + 23;

int64_t groups_of(int64_t numel) {
  return (numel + kFlashGroup - 1) / kFlashGroup;
}

/// Which state is kept.
struct Kept {
  at::ScalarType dtype = at::kFloat;  ///< of the parameter
  bool is_quantized = true;
  std::optional<at::ScalarType> corrections = std::nullopt;
};

FlashAdamState zeros(const Kept& kept, int64_t numel) {
  FlashAdamState state;
  state.exp_avg = at::zeros({numel}, kept.is_quantized ? at::kChar : kept.dtype);
  state.exp_avg_sq = at::zeros({numel}, kept.is_quantized ? at::kByte : kept.dtype);
  if (kept.is_quantized) {
    state.exp_avg_scales = at::zeros({groups_of(numel)}, at::kHalf);
    state.exp_avg_sq_scales = at::zeros({groups_of(numel)}, at::kHalf);
  }
  if (kept.corrections) state.corrections = at::zeros({numel}, *kept.corrections);
  return state;
}

struct Stepped {
  at::Tensor parameter;
  FlashAdamState state;

  Stepped copy() const {
    const auto of = [](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.clone() : tensor;
    };
    return {parameter.clone(),
            {of(state.exp_avg), of(state.exp_avg_sq), of(state.exp_avg_scales),
             of(state.exp_avg_sq_scales), of(state.corrections)}};
  }

  /// In the order of their declaration, those that are kept.
  Tensors all() const {
    Tensors found = {parameter};
    for (const at::Tensor& tensor : {state.exp_avg, state.exp_avg_sq, state.exp_avg_scales,
                                     state.exp_avg_sq_scales, state.corrections}) {
      if (tensor.defined()) found.push_back(tensor);
    }
    return found;
  }
};

/// The weight that a bfloat16 parameter and its correction stand for, in float64.
at::Tensor weight_of(const Stepped& stepped) {
  const at::Tensor wide = stepped.parameter.to(at::kDouble);
  if (!stepped.state.corrections.defined()) return wide;
  const at::Tensor bits = stepped.parameter.view(at::kShort).to(at::kInt).bitwise_and_(0x7fff);
  const at::Tensor half_gap =
      at::exp2(bits.__rshift__(7).clamp_min_(1).to(at::kDouble) - (127 + 7 + 1));
  const double most = stepped.state.corrections.scalar_type() == at::kChar ? 127 : 32767;
  return wide + stepped.state.corrections.to(at::kDouble) / most * half_gap;
}

/// Codes differ by one where the last bit of an average decides, which are few. Other numbers are
/// as near as float32's arithmetic, or few roundings of what holds them.
void expect_near(const Stepped& found, const Stepped& wanted, const Kept& kept) {
  const FlashAdamState &state = found.state, &other = wanted.state;
  const bool is_wide = kept.dtype == at::kFloat;
  const bool is_narrow = !is_wide && !kept.corrections;
  // A rounding of bfloat16 is 4e-3 of a number, one of 24 bits 3e-5; they are a thousandth of all.
  const double most = is_narrow ? 1e-4 : kept.corrections == at::kChar ? 3e-6 : 1e-6;
  EXPECT_LE(relative_error(weight_of(found), weight_of(wanted)), most);
  if (!kept.is_quantized) {
    EXPECT_LE(relative_error(state.exp_avg, other.exp_avg), is_wide ? 1e-6 : 1e-4);
    EXPECT_LE(relative_error(state.exp_avg_sq, other.exp_avg_sq), is_wide ? 1e-6 : 1e-4);
    return;
  }
  const auto expect_codes = [](const at::Tensor& codes, const at::Tensor& others) {
    const at::Tensor apart = (codes.to(at::kInt) - others.to(at::kInt)).abs();
    EXPECT_LE(apart.max().item<int64_t>(), 1);
    EXPECT_LE(apart.sum().item<int64_t>(), kNumel / 1000);
  };
  expect_codes(state.exp_avg, other.exp_avg);
  expect_codes(state.exp_avg_sq, other.exp_avg_sq);
  EXPECT_LE(relative_error(state.exp_avg_scales, other.exp_avg_scales), 1e-4);
  EXPECT_LE(relative_error(state.exp_avg_sq_scales, other.exp_avg_sq_scales), 1e-4);
}

class FlashAdam : public testing::TestWithParam<std::tuple<int, at::ScalarType, bool>> {};

Kept kept_of(int bits, bool is_quantized) {
  Kept kept{bits == 0 ? at::kFloat : at::kBFloat16, is_quantized};
  if (bits == 24) kept.corrections = at::kChar;
  if (bits == 32) kept.corrections = at::kShort;
  return kept;
}

/// Each step begins with what the plain path has left, so that a code that differs is not carried
/// on.
TEST_P(FlashAdam, MatchesThePlainPath) {
  const auto [bits, gradient_dtype, is_quantized] = GetParam();
  at::set_num_threads(1);
  const Kept kept = kept_of(bits, is_quantized);
  Numbers numbers(21);
  Stepped plain{numbers.normal({kNumel}).to(kept.dtype), zeros(kept, kNumel)};
  for (int64_t t = 1; t <= 3; ++t) {
    const FlashAdamOptions options{.lr = 0.01, .decay = 0.001, .step = t, .grad_scale = 0.37};
    const at::Tensor gradient =
        (numbers.normal({kNumel}) * numbers.normal({kNumel}).square()).to(gradient_dtype);
    Stepped fused = plain.copy();
    flash_adam_step(fused.parameter, gradient, fused.state, options);
    flash_adam_step_reference(plain.parameter, gradient, plain.state, options);
    expect_near(fused, plain, kept);
  }
}

/// 0 bits: a float32 parameter; 16: without corrections.
INSTANTIATE_TEST_SUITE_P(Kinds, FlashAdam,
                         testing::Combine(testing::Values(0, 16, 24, 32),
                                          testing::ValuesIn(kFusedTypes), testing::Bool()));

/// Every table of loops that this CPU can run.
TEST(FlashAdamState, LoopsOfAllInstructionSetsAgree) {
  std::vector<const cpu::LoopTable*> tables = {&cpu::baseline_loops()};
  if (cpu::best_kind() >= cpu::CpuKind::kAvx2) tables.push_back(&cpu::avx2_loops());
  if (cpu::best_kind() >= cpu::CpuKind::kAvx512) tables.push_back(&cpu::avx512_loops());
  Numbers numbers(23);
  const at::Tensor start = numbers.normal({kNumel}).to(at::kBFloat16);
  const at::Tensor gradient = numbers.normal({kNumel});
  std::vector<Stepped> all;
  for (const cpu::LoopTable* table : tables) {
    Stepped stepped{start.clone(), zeros(kept_of(32, true), kNumel)};
    const FlashAdamState& state = stepped.state;
    const cpu::FlashAdamRow row = {
        .p = stepped.parameter.data_ptr(),
        .g = gradient.data_ptr(),
        .m = state.exp_avg.data_ptr(),
        .v = state.exp_avg_sq.data_ptr(),
        .m_scales = static_cast<cpu::Float16*>(state.exp_avg_scales.data_ptr()),
        .v_scales = static_cast<cpu::Float16*>(state.exp_avg_sq_scales.data_ptr()),
        .corrections = state.corrections.data_ptr(),
        .are_corrections_wide = true};
    for (int64_t t = 1; t <= 2; ++t) {
      table->flash_adam[1][0](row, flash_adam_factors({.lr = 0.01, .step = t}), kNumel);
    }
    all.push_back(stepped);
    SCOPED_TRACE(table->isa);
    expect_near(all.back(), all.front(), kept_of(32, true));
  }
}

TEST(FlashAdamState, HasTheSameBitsOnTwoThreads) {
  Numbers numbers(22);
  const at::Tensor start = numbers.normal({kNumel}).to(at::kBFloat16);
  const at::Tensor gradient = numbers.normal({kNumel});
  const auto after_step = [&](int num_threads) {
    at::set_num_threads(num_threads);
    Stepped stepped{start.clone(), zeros(kept_of(24, true), kNumel)};
    flash_adam_step(stepped.parameter, gradient, stepped.state, {.decay = 0.1});
    at::set_num_threads(1);
    return stepped.all();
  };
  const Tensors one = after_step(1), two = after_step(2);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], two[i])) << i;
}

/// With a beta1 of 1 an average stays what it was: code 127 is the scale itself.
TEST(FlashAdamState, HoldsEveryScaleOfHalfPrecision) {
  constexpr int64_t kNumHalves = 0x7c00;  // finite and not negative
  const at::Tensor scales = at::arange(kNumHalves, at::kShort).view(at::kHalf);
  for (const bool is_plain : {false, true}) {
    const PlainPathScope path(is_plain);
    const int64_t numel = kNumHalves * kFlashGroup;
    Stepped stepped{at::zeros({numel}), zeros({}, numel)};
    stepped.state.exp_avg.fill_(127);
    stepped.state.exp_avg_scales.copy_(scales);
    flash_adam_step(stepped.parameter, at::zeros({numel}), stepped.state, {.beta1 = 1});
    EXPECT_TRUE(at::equal(stepped.state.exp_avg_scales, scales));
    // 0 is no share of a scale of 0.
    EXPECT_TRUE(stepped.state.exp_avg.narrow(0, kFlashGroup, numel - kFlashGroup)
                    .eq(127)
                    .all()
                    .item<bool>());
  }
}

/// Scales are rounded as float16 is anywhere: borders between two numbers, the smallest ones and
/// those that overflow among them.
TEST(FlashAdamState, RoundsScalesAsHalfPrecisionIsRounded) {
  const at::Tensor halves = at::arange(0, 0x7c00, 7, at::kShort).view(at::kHalf).to(at::kFloat);
  const at::Tensor next = (halves.to(at::kHalf).view(at::kShort) + 1).view(at::kHalf);
  const at::Tensor middle =
      at::cat({(halves + next.to(at::kFloat)) / 2, at::tensor({65520.0f, 70000.0f, 1e30f})});
  const at::Tensor bits = middle.view(at::kInt);
  for (const int64_t offset : {-1, 0, 1}) {
    const at::Tensor wanted = (bits + offset).view(at::kFloat);
    const int64_t numel = wanted.numel() * kFlashGroup;
    at::Tensor gradient = at::zeros({wanted.numel(), kFlashGroup});
    gradient.select(1, 3).copy_(wanted.neg());
    Stepped stepped{at::zeros({numel}), zeros({}, numel)};
    flash_adam_step(stepped.parameter, gradient.view({-1}), stepped.state, {.beta1 = 0});
    EXPECT_TRUE(at::equal(stepped.state.exp_avg_scales, wanted.to(at::kHalf))) << offset;
    EXPECT_TRUE(
        stepped.state.exp_avg.view({-1, kFlashGroup}).select(1, 3).eq(-127).all().item<bool>());
  }
}

/// A scale is shared, so a number that is not finite reaches its group, and no other one.
TEST(FlashAdamState, HidesNeitherNaNNorInf) {
  for (const bool is_plain : {false, true}) {
    const PlainPathScope path(is_plain);
    for (const int bits : {0, 24, 32}) {
      for (const double poison : kPoisons) {
        SCOPED_TRACE(cat(is_plain, " ", bits, " ", poison));
        const Kept kept = kept_of(bits, true);
        at::Tensor gradient = at::ones({kNumel});
        gradient[40] = poison;
        Stepped stepped{at::ones({kNumel}, kept.dtype), zeros(kept, kNumel)};
        for (int64_t t = 1; t <= 2; ++t) {
          flash_adam_step(stepped.parameter, gradient, stepped.state, {.step = t});
        }
        EXPECT_FALSE(is_finite(stepped.parameter[40]));
        EXPECT_TRUE(is_finite(stepped.parameter[31]) && is_finite(stepped.parameter[64]));
        for (const at::Tensor& scales :
             {stepped.state.exp_avg_scales, stepped.state.exp_avg_sq_scales}) {
          EXPECT_FALSE(is_finite(scales[1]));
          EXPECT_TRUE(is_finite(scales[0]) && is_finite(scales[2]));
        }
      }
    }
  }
}

/// A step is a hundredth of the gap between 1 and the next bfloat16 number.
TEST(FlashAdamState, KeepsUpdatesBelowAParametersGap) {
  const double lr = 0.01 / 128;
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const int bits : {16, 24, 32}) {
      Kept kept = kept_of(bits, true);
      kept.dtype = dtype;
      Stepped stepped{at::ones({64}, dtype), zeros(kept, 64)};
      for (int64_t t = 1; t <= 1000; ++t) {
        flash_adam_step(stepped.parameter, -at::ones({64}), stepped.state, {.lr = lr, .step = t});
      }
      const double moved = stepped.parameter[0].item<double>() - 1;
      if (bits == 16) {
        EXPECT_EQ(moved, 0) << dtype;
      } else {
        // Half a gap of the parameter, and of a correction's parts that of each of 1000 steps.
        const double gap = dtype == at::kHalf ? 1.0 / 1024 : 1.0 / 128;
        EXPECT_NEAR(moved, 1000 * lr, gap / 2 + 1000 * gap / 2 / (bits == 24 ? 254 : 65534));
      }
    }
  }
}

}  // namespace
}  // namespace automodel::kernels
