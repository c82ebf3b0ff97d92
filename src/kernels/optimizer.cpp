#include "kernels/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"

namespace automodel::kernels {

namespace {

/// The factors of one step, in float32 as the arithmetic is.
struct AdamFactors {
  float decay, l2, beta1, beta2, step_size, root_correction, eps, grad_scale;
};

AdamFactors factors_of(const AdamOptions& options) {
  const auto step = static_cast<double>(options.step);
  const double correction1 = 1.0 - std::pow(options.beta1, step);
  const double correction2 = 1.0 - std::pow(options.beta2, step);
  AdamFactors f{};
  f.decay = static_cast<float>(options.is_decoupled ? 1.0 - options.lr * options.weight_decay : 1);
  f.l2 = static_cast<float>(options.is_decoupled ? 0.0 : options.weight_decay);
  f.beta1 = static_cast<float>(options.beta1);
  f.beta2 = static_cast<float>(options.beta2);
  f.step_size = static_cast<float>(options.lr / correction1);
  f.root_correction = static_cast<float>(std::sqrt(correction2));
  f.eps = static_cast<float>(options.eps);
  f.grad_scale = static_cast<float>(options.grad_scale);
  return f;
}

template <typename T>
struct AdamPointers {
  T* p;
  const T* g;
  T* m;
  T* v;
  T* v_max;
};

template <typename T>
void adam_range(const AdamPointers<T>& x, const AdamFactors& f, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    float p = static_cast<float>(x.p[i]) * f.decay;
    const float g = static_cast<float>(x.g[i]) * f.grad_scale + f.l2 * p;
    const float m = static_cast<float>(x.m[i]) + (g - static_cast<float>(x.m[i])) * (1 - f.beta1);
    const float v = f.beta2 * static_cast<float>(x.v[i]) + (1 - f.beta2) * g * g;
    float largest = v;
    if (x.v_max != nullptr) {
      largest = std::max(static_cast<float>(x.v_max[i]), v);
      x.v_max[i] = static_cast<T>(largest);
    }
    p -= f.step_size * m / (std::sqrt(largest) / f.root_correction + f.eps);
    x.p[i] = static_cast<T>(p);
    x.m[i] = static_cast<T>(m);
    x.v[i] = static_cast<T>(v);
  }
}

template <typename T>
void adam_cpu(at::Tensor& parameter, const at::Tensor& gradient, at::Tensor& exp_avg,
              at::Tensor& exp_avg_sq, at::Tensor& max_exp_avg_sq, const AdamOptions& options) {
  const AdamPointers<T> pointers{parameter.data_ptr<T>(), gradient.data_ptr<T>(),
                                 exp_avg.data_ptr<T>(), exp_avg_sq.data_ptr<T>(),
                                 max_exp_avg_sq.defined() ? max_exp_avg_sq.data_ptr<T>() : nullptr};
  const AdamFactors factors = factors_of(options);
  at::parallel_for(0, parameter.numel(), 1 << 14,
                   [&](int64_t begin, int64_t end) { adam_range(pointers, factors, begin, end); });
}

void adam_any(at::Tensor& parameter, const at::Tensor& gradient, at::Tensor& exp_avg,
              at::Tensor& exp_avg_sq, at::Tensor& max_exp_avg_sq, const AdamOptions& options) {
  const AdamFactors f = factors_of(options);
  at::Tensor p = parameter.to(at::kFloat) * f.decay;
  const at::Tensor g = gradient.to(at::kFloat) * f.grad_scale + p * f.l2;
  const at::Tensor m = exp_avg.to(at::kFloat).lerp(g, 1 - f.beta1);
  const at::Tensor v = exp_avg_sq.to(at::kFloat) * f.beta2 + g * g * (1 - f.beta2);
  at::Tensor largest = v;
  if (max_exp_avg_sq.defined()) {
    largest = at::maximum(max_exp_avg_sq.to(at::kFloat), v);
    max_exp_avg_sq.copy_(largest);
  }
  p = p - m * f.step_size / (largest.sqrt() / f.root_correction + f.eps);
  parameter.copy_(p);
  exp_avg.copy_(m);
  exp_avg_sq.copy_(v);
}

}  // namespace

void adam_step(at::Tensor parameter, const at::Tensor& gradient, at::Tensor exp_avg,
               at::Tensor exp_avg_sq, at::Tensor max_exp_avg_sq, const AdamOptions& options) {
  at::NoGradGuard no_grad;
  const bool is_cpu = parameter.device().is_cpu();
  if (is_cpu && parameter.scalar_type() == at::kFloat) {
    adam_cpu<float>(parameter, gradient, exp_avg, exp_avg_sq, max_exp_avg_sq, options);
  } else if (is_cpu && parameter.scalar_type() == at::kBFloat16) {
    adam_cpu<at::BFloat16>(parameter, gradient, exp_avg, exp_avg_sq, max_exp_avg_sq, options);
  } else {
    adam_any(parameter, gradient, exp_avg, exp_avg_sq, max_exp_avg_sq, options);
  }
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
  const at::Tensor values = flat.device().is_cpu() && flat.scalar_type() == at::kFloat
                                ? flat
                                : flat.to(at::kCPU).to(at::kFloat);
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
