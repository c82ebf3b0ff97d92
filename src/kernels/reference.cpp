#include "kernels/reference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "kernels/dynamic_codes.h"
#include "kernels/eight_bit_block.h"
#include "kernels/pointwise.h"
#include "tensor/dtype.h"
#include "tensor/memory.h"

namespace automodel::kernels {

at::Tensor rms_norm_reference(const at::Tensor& x, const at::Tensor& weight,
                              const NormOptions& options) {
  const at::ScalarType wide_type = tensor::wide_dtype(x.scalar_type());
  const at::Tensor wide = x.to(wide_type);
  const at::Tensor scale = at::rsqrt(wide.pow(2).mean(-1, true) + options.eps);
  at::Tensor w = weight.to(wide_type);
  if (options.adds_one) w = w + 1.0;
  return (wide * scale * w).to(at::promote_types(x.scalar_type(), weight.scalar_type()));
}

at::Tensor layer_norm_reference(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias, double eps) {
  const at::ScalarType wide = at::promote_types(x.scalar_type(), weight.scalar_type());
  return at::layer_norm(x.to(wide), {x.size(-1)}, weight.to(wide),
                        bias.defined() ? bias.to(wide) : bias, eps);
}

at::Tensor activate_reference(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return kernels::silu(x);
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kReluSquared:
      return at::relu(x).pow(2);
  }
  AM_CHECK(false);
}

at::Tensor gated_activation_reference(const at::Tensor& gate_up, Activation activation) {
  const int64_t half = gate_up.size(-1) / 2;
  return activate_reference(gate_up.narrow(-1, 0, half), activation) *
         gate_up.narrow(-1, half, half);
}

/// A table's rows [B or 1, length, 1, R / 2] of the positions.
static at::Tensor rows_at(const at::Tensor& table, const at::Tensor& position_ids, int64_t length) {
  const at::Tensor picked = position_ids.defined()
                                ? table.index_select(0, position_ids.reshape({-1}))
                                      .view({position_ids.size(0), length, table.size(1)})
                                : table.narrow(0, 0, length).unsqueeze(0);
  return picked.unsqueeze(2);
}

at::Tensor rotate_last_pairs(const at::Tensor& x, const RopeTable& rope,
                             const at::Tensor& position_ids, RopeDirection direction) {
  const int64_t rotated = 2 * rope.cos.size(1);
  const int64_t plain = x.size(-1) - rotated;
  const at::ScalarType wide = at::promote_types(x.scalar_type(), rope.cos.scalar_type());
  const at::Tensor cos = rows_at(rope.cos, position_ids, x.size(1)).to(wide);
  at::Tensor sin = rows_at(rope.sin, position_ids, x.size(1)).to(wide);
  if (direction == RopeDirection::kBack) sin = sin.neg();
  const at::Tensor pairs = x.narrow(-1, plain, rotated).unflatten(-1, {-1, 2}).to(wide);
  const at::Tensor first = pairs.select(-1, 0), second = pairs.select(-1, 1);
  const at::Tensor turned =
      at::stack({first * cos - second * sin, second * cos + first * sin}, -1).flatten(-2);
  return at::cat({x.narrow(-1, 0, plain), turned.to(x.scalar_type())}, -1);
}

at::Tensor rotate(const at::Tensor& x, const RopeTable& rope, const at::Tensor& position_ids) {
  const int64_t half = rope.cos.size(1);
  const at::ScalarType wide = at::promote_types(x.scalar_type(), rope.cos.scalar_type());
  const at::Tensor cos = rows_at(rope.cos, position_ids, x.size(1)).to(wide);
  const at::Tensor sin = rows_at(rope.sin, position_ids, x.size(1)).to(wide);
  const at::Tensor first = x.narrow(-1, 0, half).to(wide);
  const at::Tensor second = x.narrow(-1, half, half).to(wide);
  std::vector<at::Tensor> parts = {(first * cos - second * sin).to(x.scalar_type()),
                                   (second * cos + first * sin).to(x.scalar_type())};
  const int64_t rest = x.size(-1) - 2 * half;
  if (rest > 0) parts.push_back(x.narrow(-1, 2 * half, rest));
  return at::cat(parts, -1);
}

Qkv split_norm_rotate_reference(const at::Tensor& qkv, const QkvOptions& options) {
  const int64_t batch = qkv.size(0);
  const int64_t length = qkv.size(1);
  const int64_t q_size = options.num_heads * options.head_dim;
  const int64_t kv_size = options.num_kv_heads * options.head_dim;
  const auto heads = [&](int64_t begin, int64_t size, int64_t count) {
    return qkv.narrow(-1, begin, size).reshape({batch, length, count, options.head_dim});
  };
  Qkv out{heads(0, q_size, options.num_heads), heads(q_size, kv_size, options.num_kv_heads),
          heads(q_size + kv_size, kv_size, options.num_kv_heads)};
  if (options.q_norm.defined()) out.q = rms_norm_reference(out.q, options.q_norm, options.norm);
  if (options.k_norm.defined()) out.k = rms_norm_reference(out.k, options.k_norm, options.norm);
  if (options.rope.is_defined()) {
    out.q = rotate(out.q, options.rope, options.position_ids);
    out.k = rotate(out.k, options.rope, options.position_ids);
  }
  return out;
}

namespace {

/// True where a query may see a key: [1 or B, 1, S, S].
at::Tensor visible(const at::Tensor& q, const AttentionOptions& options) {
  const int64_t length = q.size(1);
  const at::Tensor positions = at::arange(length, q.options().dtype(at::kLong));
  const at::Tensor distance = positions.unsqueeze(1) - positions.unsqueeze(0);
  at::Tensor mask = options.is_causal
                        ? distance.ge(0)
                        : at::ones_like(distance, distance.options().dtype(at::kBool));
  if (options.window > 0) mask = mask.logical_and(distance.lt(options.window));
  mask = mask.unsqueeze(0).unsqueeze(0);
  if (options.padding_mask.defined()) {
    mask = mask.logical_and(options.padding_mask.logical_not().unsqueeze(1).unsqueeze(1));
  }
  if (options.document_ids.defined()) {
    const at::Tensor& ids = options.document_ids;
    mask = mask.logical_and(ids.unsqueeze(2).eq(ids.unsqueeze(1)).unsqueeze(1));
  }
  if (options.chosen_keys.defined()) {
    const at::Tensor is_chosen = at::zeros({q.size(0), length, length}, mask.options());
    is_chosen.scatter_(-1, options.chosen_keys.to(at::kLong), true);
    mask = mask.logical_and(is_chosen.unsqueeze(1));
  }
  return mask;
}

/// k or v [B, S, K, H] as [B, N, S, H].
at::Tensor expand_heads(const at::Tensor& x, int64_t num_heads) {
  const int64_t repeats = num_heads / x.size(2);
  at::Tensor heads = x.transpose(1, 2);
  if (repeats == 1) return heads;
  return heads.unsqueeze(2)
      .expand({x.size(0), x.size(2), repeats, x.size(1), x.size(3)})
      .reshape({x.size(0), num_heads, x.size(1), x.size(3)});
}

}  // namespace

AttentionResult causal_attention_reference(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, const AttentionOptions& options) {
  const int64_t num_heads = q.size(2);
  const at::ScalarType wide = tensor::wide_dtype(q.scalar_type());
  const double scale =
      options.scale != 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor keys = expand_heads(k, num_heads).to(wide);
  const at::Tensor values = expand_heads(v, num_heads).to(wide);
  at::Tensor scores = at::matmul(q.transpose(1, 2).to(wide), keys.transpose(-1, -2)) * scale;
  if (options.softcap > 0) scores = at::tanh(scores / options.softcap) * options.softcap;
  const at::Tensor mask = visible(q, options);
  const at::Tensor is_blind = mask.any(-1, true).logical_not();
  // A query that sees nothing gets finite scores and then zeros, so that no NaN arises.
  scores = scores.masked_fill(mask.logical_not().logical_and(is_blind.logical_not()),
                              -std::numeric_limits<float>::infinity());
  const int64_t num_keys = scores.size(-1);
  if (options.sinks.defined()) {
    const at::Tensor sinks = options.sinks.to(wide).view({1, -1, 1, 1});
    scores = at::cat({scores, sinks.expand({scores.size(0), -1, scores.size(2), 1})}, -1);
  }
  AttentionResult result;
  result.lse = scores.logsumexp(-1);
  at::Tensor probabilities = at::softmax(scores, -1).masked_fill(is_blind, 0.0);
  if (options.sinks.defined()) probabilities = probabilities.narrow(-1, 0, num_keys);
  if (options.dropout > 0) {
    probabilities = (probabilities * options.is_kept) * (1.0 / (1.0 - options.dropout));
  }
  result.out = at::matmul(probabilities, values).transpose(1, 2).to(q.scalar_type());
  return result;
}

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
    return tensor::moved_to(dynamic_codes(is_signed), device).to(wide);
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
  // So that the copies in a wider dtype are small beside the states that 8 bits save.
  constexpr int64_t kBlocksATime = int64_t{1} << 14;
  const auto piece_of = [](const EightBitState& state, int64_t block, int64_t num_blocks,
                           int64_t count) {
    return EightBitState{state.codes.narrow(0, block * kEightBitBlock, count),
                         state.absmax.narrow(0, block, num_blocks)};
  };
  const int64_t numel = parameter.numel();
  for (int64_t block = 0; block < exp_avg.absmax.numel(); block += kBlocksATime) {
    const int64_t num_blocks = std::min(kBlocksATime, exp_avg.absmax.numel() - block);
    const int64_t begin = block * kEightBitBlock;
    const int64_t count = std::min(numel - begin, num_blocks * kEightBitBlock);
    eight_bit_piece(parameter.narrow(0, begin, count), gradient.narrow(0, begin, count),
                    piece_of(exp_avg, block, num_blocks, count),
                    piece_of(exp_avg_sq, block, num_blocks, count), options);
  }
}

}  // namespace automodel::kernels
