#include "kernels/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/cpu/loops.h"
#include "kernels/fused.h"
#include "kernels/reference.h"

namespace automodel::kernels {

namespace {

/// The factors of one step, in float32 as the arithmetic is.
std::array<float, cpu::kNumAdamFactors> factors_of(const AdamOptions& options) {
  const auto step = static_cast<double>(options.step);
  const double correction1 = 1.0 - std::pow(options.beta1, step);
  const double correction2 = 1.0 - std::pow(options.beta2, step);
  const bool decays = options.is_decoupled;
  std::array<float, cpu::kNumAdamFactors> factors{};
  factors[cpu::kDecay] = static_cast<float>(decays ? 1.0 - options.lr * options.weight_decay : 1.0);
  factors[cpu::kL2] = static_cast<float>(decays ? 0.0 : options.weight_decay);
  factors[cpu::kBeta1] = static_cast<float>(options.beta1);
  factors[cpu::kOneMinusBeta1] = static_cast<float>(1.0 - options.beta1);
  factors[cpu::kBeta2] = static_cast<float>(options.beta2);
  factors[cpu::kOneMinusBeta2] = static_cast<float>(1.0 - options.beta2);
  factors[cpu::kStepSize] = static_cast<float>(options.lr / correction1);
  factors[cpu::kRootCorrection] = static_cast<float>(std::sqrt(correction2));
  factors[cpu::kEps] = static_cast<float>(options.eps);
  factors[cpu::kGradScale] = static_cast<float>(options.grad_scale);
  return factors;
}

}  // namespace

void adam_step(at::Tensor parameter, const at::Tensor& gradient, at::Tensor exp_avg,
               at::Tensor exp_avg_sq, at::Tensor max_exp_avg_sq, const AdamOptions& options) {
  if (!is_fusable({parameter, gradient, exp_avg, exp_avg_sq, max_exp_avg_sq})) {
    adam_step_reference(parameter, gradient, exp_avg, exp_avg_sq, max_exp_avg_sq, options);
    return;
  }
  const auto factors = factors_of(options);
  float* p = parameter.data_ptr<float>();
  const float* g = gradient.data_ptr<float>();
  float* m = exp_avg.data_ptr<float>();
  float* v = exp_avg_sq.data_ptr<float>();
  float* v_max = max_exp_avg_sq.defined() ? max_exp_avg_sq.data_ptr<float>() : nullptr;
  // Blocks of a fixed size: vector remainders fall on the same elements on any number of threads.
  constexpr int64_t kBlock = 1 << 14;
  const int64_t numel = parameter.numel();
  at::parallel_for(0, (numel + kBlock - 1) / kBlock, 1, [&](int64_t first, int64_t last) {
    for (int64_t at = first * kBlock; at < std::min(numel, last * kBlock); at += kBlock) {
      cpu::loops().adam(p + at, g + at, m + at, v + at, v_max != nullptr ? v_max + at : nullptr,
                        factors.data(), std::min(kBlock, numel - at));
    }
  });
}

void sgd_step(at::Tensor parameter, const at::Tensor& gradient, at::Tensor momentum_buffer,
              const SgdOptions& options) {
  at::NoGradGuard no_grad;
  const at::Tensor p = parameter.to(at::kFloat);
  at::Tensor g = gradient.to(at::kFloat) * options.grad_scale + p * options.weight_decay;
  if (momentum_buffer.defined()) {
    const at::Tensor buffer =
        options.is_first_step
            ? g
            : momentum_buffer.to(at::kFloat) * options.momentum + g * (1 - options.dampening);
    momentum_buffer.copy_(buffer);
    g = options.is_nesterov ? g + buffer * options.momentum : buffer;
  }
  parameter.copy_(p - g * options.lr);
}

double sum_of_squares(const at::Tensor& flat) {
  if (!flat.is_cpu()) return flat.to(at::kDouble).square().sum().item<double>();
  const at::Tensor values = flat.to(at::kFloat);
  const float* data = values.data_ptr<float>();
  constexpr int64_t kBlock = 1 << 14;  // fixed: the order of the sum does not depend on threads
  const int64_t num_blocks = (values.numel() + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<size_t>(num_blocks), 0.0);
  at::parallel_for(0, num_blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t end = std::min(values.numel(), (block + 1) * kBlock);
      double sum = 0;
      for (int64_t i = block * kBlock; i < end; ++i) sum += static_cast<double>(data[i]) * data[i];
      sums[static_cast<size_t>(block)] = sum;
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace automodel::kernels
