#include "kernels/optimizer/flash_adam.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/divide.h"
#include "core/error.h"
#include "kernels/base/fused.h"
#include "kernels/cpu/loops.h"
#include "kernels/optimizer/update_pieces.h"

namespace automodel::kernels {

namespace {

/// Where an element lies; null for an undefined tensor.
template <typename T = void>
T* address_of(const at::Tensor& flat, int64_t element) {
  if (!flat.defined()) return nullptr;
  char* begin = static_cast<char*>(flat.data_ptr());
  return reinterpret_cast<T*>(begin + element * static_cast<int64_t>(flat.itemsize()));
}

int64_t num_groups(int64_t numel) {
  return ceil_div(numel, kFlashGroup);
}

void check_state(const at::Tensor& parameter, const FlashAdamState& state) {
  const int64_t numel = parameter.numel();
  AM_CHECK(state.exp_avg.numel() == numel && state.exp_avg_sq.numel() == numel);
  AM_CHECK(state.exp_avg_scales.defined() == state.exp_avg_sq_scales.defined());
  if (state.exp_avg_scales.defined()) {
    AM_CHECK(state.exp_avg.scalar_type() == at::kChar &&
             state.exp_avg_sq.scalar_type() == at::kByte);
    for (const at::Tensor& scales : {state.exp_avg_scales, state.exp_avg_sq_scales}) {
      AM_CHECK(scales.scalar_type() == at::kHalf && scales.numel() == num_groups(numel));
    }
  } else {
    AM_CHECK(state.exp_avg.dtype() == parameter.dtype() &&
             state.exp_avg_sq.dtype() == parameter.dtype());
  }
  if (state.corrections.defined()) {
    const at::ScalarType dtype = state.corrections.scalar_type();
    AM_CHECK(dtype == at::kChar || dtype == at::kShort);
    AM_CHECK(parameter.itemsize() == 2 && state.corrections.numel() == numel);
  }
}

/// Elements [begin, begin + count) of a state; a group begins there.
FlashAdamState piece_of(const FlashAdamState& state, int64_t begin, int64_t count) {
  const auto elements = [&](const at::Tensor& flat) {
    return flat.defined() ? flat.narrow(0, begin, count) : flat;
  };
  const auto groups = [&](const at::Tensor& flat) {
    return flat.defined() ? flat.narrow(0, begin / kFlashGroup, num_groups(count)) : flat;
  };
  return {elements(state.exp_avg), elements(state.exp_avg_sq), groups(state.exp_avg_scales),
          groups(state.exp_avg_sq_scales), elements(state.corrections)};
}

// --- the plain path

/// 2^exponent of int32 exponents of normal numbers.
at::Tensor powers_of_two(const at::Tensor& exponents) {
  return exponents.add(127).mul_(1 << 23).view(at::kFloat);
}

/// numbers * 2^exponents, where the power alone may be too small for float32.
at::Tensor by_power_of_two(const at::Tensor& numbers, const at::Tensor& exponents) {
  const at::Tensor half = exponents.__rshift__(1);
  return numbers * powers_of_two(half) * powers_of_two(exponents - half);
}

/// The logarithms of half the gaps between 16-bit numbers and the next ones, int32.
at::Tensor half_gaps(const at::Tensor& parameter) {
  const bool is_half = parameter.scalar_type() == at::kHalf;
  const int mantissa = is_half ? 10 : 7;
  const int bias = is_half ? 15 : 127;
  const at::Tensor bits = parameter.view(at::kShort).to(at::kInt).bitwise_and_(0x7fff);
  return bits.__rshift__(mantissa).clamp_min_(1).sub_(bias + mantissa + 1);
}

/// Roots that are rounded once: ATen's in float32 may be a unit of the last place off on a CPU.
at::Tensor roots_of(const at::Tensor& numbers) {
  return numbers.is_cpu() ? numbers.to(at::kDouble).sqrt_().to(at::kFloat) : numbers.sqrt();
}

double most_correction(const at::Tensor& corrections) {
  return corrections.scalar_type() == at::kChar ? 127 : 32767;
}

at::Tensor read_weights(const at::Tensor& parameter, const at::Tensor& corrections) {
  const at::Tensor values = parameter.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  if (!corrections.defined()) return values;
  const at::Tensor shares = corrections.to(at::kFloat).div_(most_correction(corrections));
  return values + by_power_of_two(shares, half_gaps(parameter));
}

void write_weights(const at::Tensor& weights, at::Tensor parameter, at::Tensor corrections) {
  parameter.copy_(weights);
  if (!corrections.defined()) return;
  const at::Tensor lost = weights - parameter.to(at::kFloat);
  at::Tensor shares = by_power_of_two(lost, half_gaps(parameter).neg());
  shares = shares.masked_fill(shares.isnan(), 0).clamp_(-1, 1).mul_(most_correction(corrections));
  corrections.copy_(shares.abs().add_(0.5).floor_().mul_(shares.sign()));
}

/// A row of each group, the last one filled up with zeros.
at::Tensor in_groups(const at::Tensor& flat) {
  const int64_t groups = num_groups(flat.numel());
  return at::constant_pad_nd(flat, {0, groups * kFlashGroup - flat.numel()})
      .view({groups, kFlashGroup});
}

at::Tensor from_groups(const at::Tensor& groups, int64_t numel) {
  return groups.view({-1}).narrow(0, 0, numel);
}

at::Tensor read_average(const at::Tensor& codes, const at::Tensor& scales) {
  if (!scales.defined()) return codes.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  const at::Tensor factors = scales.to(at::kFloat).unsqueeze(1);
  if (codes.scalar_type() == at::kByte) {
    const at::Tensor roots = in_groups(codes.to(at::kFloat)).div_(255).mul_(factors);
    return from_groups(roots * roots, codes.numel());
  }
  const at::Tensor shares = in_groups(codes.to(at::kFloat)).div_(127);
  return from_groups(shares / (2 - shares.abs()) * factors, codes.numel());
}

void write_average(const at::Tensor& average, at::Tensor codes, at::Tensor scales) {
  if (!scales.defined()) {
    codes.copy_(average);
    return;
  }
  const bool is_signed = codes.scalar_type() == at::kChar;
  const at::Tensor groups = in_groups(is_signed ? average : roots_of(average));
  const at::Tensor largest = groups.nan_to_num(0).abs().amax(1).clamp_min_(1e-12);
  const at::Tensor numbers = groups / largest.unsqueeze(1);
  const at::Tensor shares = is_signed ? numbers * 2 / (1 + numbers.abs()) : numbers;
  const at::Tensor rounded = shares.mul(is_signed ? 127 : 255).add_(0.5).floor_();
  const at::Tensor kept = rounded.masked_fill(rounded.isnan(), is_signed ? -127 : 0);
  codes.copy_(from_groups(kept, codes.numel()));
  scales.copy_(largest + groups.mul(0).sum(1));
}

void plain_piece(at::Tensor parameter, const at::Tensor& gradient, const FlashAdamState& state,
                 const FlashAdamFactors& f) {
  at::Tensor weights = read_weights(parameter, state.corrections);
  const at::Tensor g = gradient.to(at::kFloat) * f.grad_scale;
  const at::Tensor m =
      read_average(state.exp_avg, state.exp_avg_scales).mul(f.beta1).add_(g * f.rest1);
  const at::Tensor v =
      read_average(state.exp_avg_sq, state.exp_avg_sq_scales).mul(f.beta2).add_(g * g * f.rest2);
  const at::Tensor divisor = roots_of(v / f.correction2).add_(f.eps);
  weights.mul_(f.decay).sub_((m / f.correction1).mul_(f.lr).div_(divisor));
  write_weights(weights, std::move(parameter), state.corrections);
  write_average(m, state.exp_avg, state.exp_avg_scales);
  write_average(v, state.exp_avg_sq, state.exp_avg_sq_scales);
}

}  // namespace

FlashAdamFactors flash_adam_factors(const FlashAdamOptions& options) {
  FlashAdamFactors factors;
  factors.lr = static_cast<float>(options.lr);
  factors.beta1 = static_cast<float>(options.beta1);
  factors.rest1 = 1.0f - factors.beta1;
  factors.beta2 = static_cast<float>(options.beta2);
  factors.rest2 = 1.0f - factors.beta2;
  factors.eps = static_cast<float>(options.eps);
  factors.decay = 1.0f - static_cast<float>(options.decay);
  const auto power = [&](float beta) {
    return static_cast<float>(
        std::pow(static_cast<double>(beta), static_cast<double>(options.step)));
  };
  factors.correction1 = 1.0f - power(factors.beta1);
  factors.correction2 = 1.0f - power(factors.beta2);
  factors.grad_scale = static_cast<float>(options.grad_scale);
  return factors;
}

void flash_adam_step_reference(at::Tensor parameter, const at::Tensor& gradient,
                               const FlashAdamState& state, const FlashAdamOptions& options) {
  at::NoGradGuard no_grad;
  const int64_t piece = elements_updated_at_once(!parameter.is_cpu());
  AM_CHECK(piece % kFlashGroup == 0);
  const FlashAdamFactors factors = flash_adam_factors(options);
  const int64_t numel = parameter.numel();
  for (int64_t begin = 0; begin < numel; begin += piece) {
    const int64_t count = std::min(piece, numel - begin);
    plain_piece(parameter.narrow(0, begin, count), gradient.narrow(0, begin, count),
                piece_of(state, begin, count), factors);
  }
}

void flash_adam_step(at::Tensor parameter, const at::Tensor& gradient, const FlashAdamState& state,
                     const FlashAdamOptions& options) {
  check_state(parameter, state);
  if (!is_fusable({parameter}) || !is_fusable({gradient})) {
    flash_adam_step_reference(parameter, gradient, state, options);
    return;
  }
  const FlashAdamFactors factors = flash_adam_factors(options);
  const cpu::FlashAdamLoop loop =
      cpu::loops().flash_adam[is_bfloat16(parameter)][is_bfloat16(gradient)];
  const bool are_wide =
      state.corrections.defined() && state.corrections.scalar_type() == at::kShort;
  // Blocks of a fixed size: vector remainders fall on the same elements on any number of threads.
  constexpr int64_t kBlock = 1 << 14;
  static_assert(kBlock % kFlashGroup == 0);
  const int64_t numel = parameter.numel();
  at::parallel_for(0, ceil_div(numel, kBlock), 1, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kBlock;
    const int64_t group = begin / kFlashGroup;
    const cpu::FlashAdamRow row = {address_of(parameter, begin),
                                   address_of(gradient, begin),
                                   address_of(state.exp_avg, begin),
                                   address_of(state.exp_avg_sq, begin),
                                   address_of<cpu::Float16>(state.exp_avg_scales, group),
                                   address_of<cpu::Float16>(state.exp_avg_sq_scales, group),
                                   address_of(state.corrections, begin),
                                   are_wide};
    loop(row, factors, std::min(numel, last * kBlock) - begin);
  });
}

}  // namespace automodel::kernels
