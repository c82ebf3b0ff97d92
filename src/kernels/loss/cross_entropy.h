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

/// Rows of logits that are in memory at once: 512, or on a device whose kernel makes their loss,
/// and where small products are slow, those of 2^28 logits if they are more.
int64_t most_logit_rows(int64_t vocab_size, bool is_by_device_kernel);

/// Makes a head's products logits, in place: scaled, capped, rounded. Returns the cap's slope for
/// undo_logits(); undefined without a cap.
at::Tensor make_logits(const at::Tensor& products, const CrossEntropyOptions& options);
/// Makes gradients of logits those of the products, in place. `slope` is make_logits()'s.
void undo_logits(const at::Tensor& gradients, const at::Tensor& slope,
                 const CrossEntropyOptions& options);

/// gradient * scale, in the gradient's dtype; the gradient itself, without a copy, where the scale
/// is 1 on the CPU. Undefined for an undefined one.
at::Tensor scaled_gradient(const at::Tensor& gradient, const at::Tensor& scale);

/// InputError naming a label that is neither options.ignore_index nor in [0, vocab_size). An
/// accelerator's labels are not read back: its own kernels refuse a wrong one.
void check_labels(const at::Tensor& labels, int64_t vocab_size, int64_t ignore_index);

/// Head and cross-entropy as one operation, by chunks of most_logit_rows(), so that the logits [T,
/// V] never exist: sum over tokens t with labels[t] != ignore_index of CE(hidden[t] @ weight^T,
/// labels[t]), divided by options.divisor. hidden [T, D], weight [V, D], labels [T] int64. Scalar
/// float32, differentiable in hidden and weight (gradients are made in the forward pass when
/// needed). No label at all: 0, with zero gradients. A label outside [0, V): InputError naming it.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                const at::Tensor& labels, const CrossEntropyOptions& options);

}  // namespace automodel::kernels
