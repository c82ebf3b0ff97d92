#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace automodel::kernels {

/// How a weight [out, in] is rounded to 4 bits: neighbours in a row form groups, and each group has
/// a scale of its own.
struct FourBitGroups {
  int64_t size = 256;  ///< elements of a group; divides a row
  /// True: the values are -8 to 7 times the scale. False: they are sixteen steps from the group's
  /// least to its greatest.
  bool is_symmetric = true;
  /// That scales (and least values) are rounded to; not float16, in which small ones are 0.
  at::ScalarType scale_dtype = at::kBFloat16;
};

/// What a linear layer rounds in quantization-aware training, as torchao's QAT quantizers do.
struct FakeQuantization {
  FourBitGroups weights;
  /// Whether inputs are rounded too: each token to 8 bits between its least and greatest value.
  bool rounds_inputs = true;
};

/// The values that stand in for `weight` when it is held in 4 bits, in its dtype: rounded to the
/// nearest of their group's sixteen, ties to even, and scaled back. Every operation is rounded to
/// the dtypes that torchao computes in. The gradient is 0 where a value was clamped; elsewhere it
/// passes, times the scale and its reciprocal where both are rounded (groups about zero).
at::Tensor rounded_weight(const at::Tensor& weight, const FourBitGroups& groups);

/// x [..., in] as it is after quantization to 8 bits, one scale and zero point a token; otherwise
/// like rounded_weight().
at::Tensor rounded_tokens(const at::Tensor& x);

/// x [..., in] times weight^T plus bias (or undefined) with operands as `format` rounds them:
/// [..., out] in the dtype of x, which is also weight's. The backward pass rounds both again, so no
/// more is saved than without rounding.
at::Tensor fake_quantized_linear(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias, const FakeQuantization& format);

}  // namespace automodel::kernels
