#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace automodel::kernels {

struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  double softcap = 0;        ///< logits become cap * tanh(logits / cap); 0: off
  double logit_scale = 1.0;  ///< logits are multiplied by it (Granite: 1 / logits_scaling)
  double divisor = 1.0;      ///< the sum of losses is divided by it
  /// Scaled and capped logits are rounded to this dtype before the loss, and their gradients after
  /// it, as in a model whose outputs are cast. Absent: no rounding.
  std::optional<at::ScalarType> logits_dtype = {};

  /// float32 numbers rounded to logits_dtype.
  at::Tensor rounded(const at::Tensor& numbers) const;
};

/// Head and cross-entropy as one operation, chunk by chunk, so that the logits [T, V] never exist:
/// sum over tokens t with labels[t] != ignore_index of CE(hidden[t] @ weight^T, labels[t]), divided
/// by options.divisor. hidden [T, D], weight [V, D], labels [T] int64. Scalar float32,
/// differentiable in hidden and weight (gradients are made in the forward pass when needed). No
/// label at all: 0, with zero gradients. A label outside [0, V): InputError naming it.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                const at::Tensor& labels, const CrossEntropyOptions& options);

}  // namespace automodel::kernels
