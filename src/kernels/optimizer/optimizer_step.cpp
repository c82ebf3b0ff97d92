#include "kernels/optimizer/optimizer_step.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/divide.h"
#include "core/error.h"
#include "kernels/base/dynamic_codes.h"
#include "kernels/base/fused.h"
#include "kernels/cpu/eight_bit_block.h"
#include "kernels/cpu/loops.h"
#include "kernels/device/device_kernels.h"
#include "kernels/optimizer/step_reference.h"
#include "kernels/optimizer/update_pieces.h"
#include "tensor/shard_spec.h"

namespace automodel::kernels {

namespace {

/// The factors of one step, in float32 as the arithmetic is.
std::array<float, cpu::kNumAdamFactors> factors_of(const AdamOptions& options) {
  const auto [correction1, correction2] = bias_corrections(options);
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

/// Calls `work` with pieces of [0, numel).
template <typename Work>
void in_pieces(const at::Tensor& flat, Work work) {
  const int64_t numel = flat.numel();
  const int64_t piece = elements_updated_at_once(!flat.is_cpu());
  for (int64_t begin = 0; begin < numel; begin += piece)
    work(begin, std::min(piece, numel - begin));
}

/// Elements [begin, begin + count) of a tensor that may be undefined.
at::Tensor piece_of(const at::Tensor& flat, int64_t begin, int64_t count) {
  return flat.defined() ? flat.narrow(0, begin, count) : flat;
}

void sgd_piece(at::Tensor parameter, const at::Tensor& gradient, at::Tensor momentum_buffer,
               const SgdOptions& options) {
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

/// Sums of squares of blocks of a fixed size, appended to `sums`.
void add_block_sums(const at::Tensor& values, std::vector<double>& sums) {
  constexpr int64_t kBlock = 1 << 14;  // fixed: the order of the sum does not depend on threads
  const int64_t numel = values.numel();
  const int64_t num_blocks = ceil_div(numel, kBlock);
  const size_t first_sum = sums.size();
  sums.resize(first_sum + static_cast<size_t>(num_blocks), 0.0);
  by_storage(values, [&](auto storage) {
    using T = decltype(storage);
    const T* data = numbers_of<T>(values);
    at::parallel_for(0, num_blocks, 1, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        const int64_t begin = block * kBlock;
        sums[first_sum + static_cast<size_t>(block)] =
            cpu::loops().of<T>().squares(data + begin, std::min(kBlock, numel - begin));
      }
    });
  });
}

/// The sum of the squares, float64, on the device.
at::Tensor squares_on_device(const at::Tensor& flat) {
  const auto* const kernels = device::kernels_for({flat});
  if (kernels == nullptr || !flat.is_contiguous() || flat.numel() == 0) {
    return flat.to(at::kDouble).square().sum();
  }
  const at::Tensor partials =
      at::empty({kernels->most_partials()}, flat.options().dtype(at::kDouble));
  by_storage(flat, [&](auto storage) {
    using T = decltype(storage);
    kernels->of<T>().squares(numbers_of<T>(flat), flat.numel(), partials.data_ptr<double>(),
                             partials.numel());
  });
  return partials.sum();
}

/// Where an element lies; null for an undefined tensor.
void* address_of(const at::Tensor& flat, int64_t element) {
  if (!flat.defined()) return nullptr;
  return static_cast<char*>(flat.data_ptr()) + element * static_cast<int64_t>(flat.itemsize());
}

}  // namespace

std::pair<double, double> bias_corrections(const AdamOptions& options) {
  if (!options.is_bias_corrected) return {1.0, 1.0};
  const auto step = static_cast<double>(options.step);
  return {1.0 - std::pow(options.beta1, step), 1.0 - std::pow(options.beta2, step)};
}

void adam_step(at::Tensor parameter, const at::Tensor& gradient, at::Tensor exp_avg,
               at::Tensor exp_avg_sq, at::Tensor max_exp_avg_sq, const AdamOptions& options) {
  const auto* const kernels = device::kernels_for({parameter});
  if (kernels != nullptr && device::kernels_for({gradient}) == kernels &&
      device::kernels_for({exp_avg, exp_avg_sq, max_exp_avg_sq}) == kernels) {
    const auto factors = factors_of(options);
    kernels->adam[is_bfloat16(parameter)][is_bfloat16(gradient)][is_bfloat16(exp_avg)](
        address_of(parameter, 0), address_of(gradient, 0), address_of(exp_avg, 0),
        address_of(exp_avg_sq, 0), address_of(max_exp_avg_sq, 0), factors.data(),
        parameter.numel());
    return;
  }
  const bool is_fused = is_fusable({parameter}) && is_fusable({gradient}) &&
                        is_fusable({exp_avg, exp_avg_sq, max_exp_avg_sq});
  if (!is_fused) {
    in_pieces(parameter, [&](int64_t begin, int64_t count) {
      adam_step_reference(piece_of(parameter, begin, count), piece_of(gradient, begin, count),
                          piece_of(exp_avg, begin, count), piece_of(exp_avg_sq, begin, count),
                          piece_of(max_exp_avg_sq, begin, count), options);
    });
    return;
  }
  const auto factors = factors_of(options);
  const cpu::AdamLoop loop =
      cpu::loops().adam[is_bfloat16(parameter)][is_bfloat16(gradient)][is_bfloat16(exp_avg)];
  // Blocks of a fixed size: vector remainders fall on the same elements on any number of threads.
  constexpr int64_t kBlock = 1 << 14;
  const int64_t numel = parameter.numel();
  at::parallel_for(0, ceil_div(numel, kBlock), 1, [&](int64_t first, int64_t last) {
    for (int64_t at = first * kBlock; at < std::min(numel, last * kBlock); at += kBlock) {
      loop(address_of(parameter, at), address_of(gradient, at), address_of(exp_avg, at),
           address_of(exp_avg_sq, at), address_of(max_exp_avg_sq, at), factors.data(),
           std::min(kBlock, numel - at));
    }
  });
}

void adam_eight_bit_step(at::Tensor parameter, const at::Tensor& gradient, EightBitState exp_avg,
                         EightBitState exp_avg_sq, const AdamOptions& options) {
  const int64_t numel = parameter.numel();
  const int64_t num_blocks = ceil_div(numel, kEightBitBlock);
  AM_CHECK(exp_avg.codes.numel() == numel && exp_avg_sq.codes.numel() == numel);
  AM_CHECK(exp_avg.absmax.numel() == num_blocks && exp_avg_sq.absmax.numel() == num_blocks);
  if (!is_fusable({parameter}) || !is_fusable({gradient})) {
    adam_eight_bit_step_reference(parameter, gradient, exp_avg, exp_avg_sq, options);
    return;
  }
  AdamOptions decoupled = options;
  decoupled.is_decoupled = true;
  const auto factors = factors_of(decoupled);
  const cpu::AdamEightBitLoop loop =
      cpu::loops().adam_eight_bit[is_bfloat16(parameter)][is_bfloat16(gradient)];
  const auto row_from = [](const EightBitState& state, bool is_signed, int64_t block) {
    return cpu::EightBitRow{&dynamic_map(is_signed),
                            state.codes.data_ptr<uint8_t>() + block * kEightBitBlock,
                            state.absmax.data_ptr<float>() + block};
  };
  constexpr int64_t kBlocksATime = 64;
  at::parallel_for(0, num_blocks, kBlocksATime, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kEightBitBlock;
    loop(address_of(parameter, begin), address_of(gradient, begin),
         row_from(exp_avg, /*is_signed=*/true, first),
         row_from(exp_avg_sq, /*is_signed=*/false, first), factors.data(),
         std::min(numel, last * kEightBitBlock) - begin);
  });
}

void sgd_step(at::Tensor parameter, const at::Tensor& gradient, at::Tensor momentum_buffer,
              const SgdOptions& options) {
  at::NoGradGuard no_grad;
  in_pieces(parameter, [&](int64_t begin, int64_t count) {
    sgd_piece(piece_of(parameter, begin, count), piece_of(gradient, begin, count),
              piece_of(momentum_buffer, begin, count), options);
  });
}

double sum_of_squares(const at::Tensor& flat) {
  if (!flat.is_cpu()) return squares_on_device(flat).item<double>();
  std::vector<double> sums;
  in_pieces(flat, [&](int64_t begin, int64_t count) {
    const at::Tensor piece = flat.narrow(0, begin, count);
    add_block_sums(is_bfloat16(piece) ? piece : piece.to(at::kFloat), sums);
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

std::vector<double> sums_of_squares(const std::vector<at::Tensor>& flats) {
  std::vector<double> sums;
  std::vector<at::Tensor> on_device;
  for (const at::Tensor& flat : flats) {
    sums.push_back(flat.is_cpu() ? sum_of_squares(flat) : 0);
    if (!flat.is_cpu()) on_device.push_back(squares_on_device(flat));
  }
  if (on_device.empty()) return sums;
  const at::Tensor read = at::stack(on_device).cpu();
  const double* next = read.const_data_ptr<double>();
  for (size_t i = 0; i < flats.size(); ++i) {
    if (!flats[i].is_cpu()) sums[i] = *next++;
  }
  return sums;
}

std::vector<double> sums_of_squares(const std::vector<tensor::FlatShard>& shards) {
  std::vector<at::Tensor> buffers;
  for (const tensor::FlatShard& shard : shards) buffers.push_back(shard.buffer);
  return sums_of_squares(buffers);
}

}  // namespace automodel::kernels
