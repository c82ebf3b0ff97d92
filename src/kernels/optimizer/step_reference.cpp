#include "kernels/optimizer/step_reference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "kernels/base/device_table.h"
#include "kernels/base/dynamic_codes.h"
#include "kernels/cpu/eight_bit_block.h"
#include "kernels/optimizer/update_pieces.h"
#include "tensor/dtype.h"

namespace automodel::kernels {

void adam_step_reference(at::Tensor parameter, const at::Tensor& gradient, at::Tensor exp_avg,
                         at::Tensor exp_avg_sq, at::Tensor max_exp_avg_sq,
                         const AdamOptions& options) {
  at::NoGradGuard no_grad;
  const auto [correction1, correction2] = bias_corrections(options);
  const double decay = options.is_decoupled ? 1.0 - options.lr * options.weight_decay : 1.0;
  const at::ScalarType wide = tensor::wide_dtype(parameter.scalar_type());
  at::Tensor p = parameter.to(wide);
  at::Tensor g = gradient.to(wide) * options.grad_scale;
  if (!options.is_decoupled) g.add_(p * options.weight_decay);
  p = p * decay;
  const at::Tensor m = exp_avg.to(wide).lerp(g, 1.0 - options.beta1);
  // In place from here on: every copy is as large as what is updated.
  at::Tensor v = exp_avg_sq.to(wide) * options.beta2;
  v.add_(g.mul_(g).mul_(1.0 - options.beta2));
  g.reset();
  at::Tensor largest = v;
  if (max_exp_avg_sq.defined()) {
    largest = at::maximum(max_exp_avg_sq.to(wide), v);
    max_exp_avg_sq.copy_(largest);
  }
  const at::Tensor divisor = largest.sqrt().div_(std::sqrt(correction2)).add_(options.eps);
  p.sub_((m * (options.lr / correction1)).div_(divisor));
  parameter.copy_(p);
  exp_avg.copy_(m);
  exp_avg_sq.copy_(v);
}

namespace {

/// A state's numbers, in a wide dtype.
at::Tensor from_eight_bits(const EightBitState& state, const at::Tensor& values) {
  const int64_t numel = state.codes.numel();
  const at::Tensor factors =
      state.absmax.repeat_interleave(kEightBitBlock).narrow(0, 0, numel).to(values.dtype());
  return values.index_select(0, state.codes.to(at::kInt)).mul_(factors);
}

/// Rounds numbers to a state's codes. The quotient is float32 whatever the numbers, as codes are
/// chosen by it.
void to_eight_bits(const at::Tensor& numbers, const at::Tensor& values, EightBitState state) {
  const int64_t num_blocks = state.absmax.numel();
  const int64_t num_absent = num_blocks * kEightBitBlock - numbers.numel();
  const at::Tensor blocks = at::constant_pad_nd(numbers.to(at::kFloat), {0, num_absent})
                                .view({num_blocks, kEightBitBlock});
  state.absmax.copy_(blocks.abs().amax(1) + blocks.mul(0).sum(1));
  const at::Tensor scales = state.absmax.clamp_min(1e-38).reciprocal().unsqueeze(1);
  const at::Tensor narrow = values.to(at::kFloat);
  const at::Tensor borders = (narrow.narrow(0, 0, 255) + narrow.narrow(0, 1, 255)) / 2;
  const at::Tensor codes = at::bucketize(blocks * scales, borders, /*out_int32=*/true);
  state.codes.copy_(codes.view({-1}).narrow(0, 0, numbers.numel()));
}

void eight_bit_piece(at::Tensor parameter, const at::Tensor& gradient, const EightBitState& exp_avg,
                     const EightBitState& exp_avg_sq, const AdamOptions& options) {
  const at::Device device = parameter.device();
  const at::ScalarType wide = tensor::wide_dtype(parameter.scalar_type());
  const auto values_of = [&](bool is_signed) {
    return table_on(dynamic_codes(is_signed), device).to(wide);
  };
  const at::Tensor with_sign = values_of(true), without_sign = values_of(false);
  at::Tensor m = from_eight_bits(exp_avg, with_sign);
  at::Tensor v = from_eight_bits(exp_avg_sq, without_sign);
  AdamOptions decoupled = options;
  decoupled.is_decoupled = true;
  adam_step_reference(parameter, gradient, m, v, at::Tensor(), decoupled);
  to_eight_bits(m, with_sign, exp_avg);
  to_eight_bits(v, without_sign, exp_avg_sq);
}

}  // namespace

void adam_eight_bit_step_reference(at::Tensor parameter, const at::Tensor& gradient,
                                   EightBitState exp_avg, EightBitState exp_avg_sq,
                                   const AdamOptions& options) {
  at::NoGradGuard no_grad;
  const int64_t blocks_at_once = elements_updated_at_once(!parameter.is_cpu()) / kEightBitBlock;
  const auto piece_of = [](const EightBitState& state, int64_t block, int64_t num_blocks,
                           int64_t count) {
    return EightBitState{state.codes.narrow(0, block * kEightBitBlock, count),
                         state.absmax.narrow(0, block, num_blocks)};
  };
  const int64_t numel = parameter.numel();
  for (int64_t block = 0; block < exp_avg.absmax.numel(); block += blocks_at_once) {
    const int64_t num_blocks = std::min(blocks_at_once, exp_avg.absmax.numel() - block);
    const int64_t begin = block * kEightBitBlock;
    const int64_t count = std::min(numel - begin, num_blocks * kEightBitBlock);
    eight_bit_piece(parameter.narrow(0, begin, count), gradient.narrow(0, begin, count),
                    piece_of(exp_avg, block, num_blocks, count),
                    piece_of(exp_avg_sq, block, num_blocks, count), options);
  }
}

}  // namespace automodel::kernels
