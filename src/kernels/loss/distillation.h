#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/loss/cross_entropy.h"
#include "kernels/loss/vocabulary_rows.h"

namespace automodel::kernels {

/// How a student's loss is made of its own labels and of a teacher's distribution.
struct DistillationOptions {
  double kd_ratio = 0.5;     ///< (1 - kd_ratio) * cross-entropy + kd_ratio * divergence
  double temperature = 1.0;  ///< both models' logits are divided by it before the divergence
  /// Whether logits are divided in float32; else in the dtype of the weight that made them.
  bool fp32_upcast = true;
};

/// What a teacher's logits are made of, for the tokens that a student is scored on.
struct TeacherHead {
  at::Tensor hidden;            ///< [T, its hidden size], the same tokens as the student's
  at::Tensor weight;            ///< [V, its hidden size], the same rows as the student's
  CrossEntropyOptions options;  ///< its scale, cap and dtype of logits
};

/// A student's loss, and what it is made of.
struct DistillationLoss {
  at::Tensor total;  ///< scalar with a graph, float32 or the weight's wider dtype
  at::Tensor ce;     ///< sum of cross-entropies / divisor; float64; 0 where kd_ratio is 1
  at::Tensor kd;     ///< sum of divergences / divisor; float64
};

/// Both heads and the loss as one operation, chunk by chunk, so that no model's logits [T, V] ever
/// exist. Of every token t with labels[t] != options.ignore_index:
///
///   ce = -log softmax(s)[label]
///   kd = temperature^2 * sum over v of p[v] * (log p[v] - log q[v]), where p[v] > 0,
///        p = softmax(t / temperature), q = softmax(s / temperature)
///
/// with the student's logits s and the teacher's t, summed and divided by options.divisor. hidden
/// [T, D], weight [V, D], labels [T] int64. Differentiable in the student's hidden and weight. A
/// label outside [0, V): InputError naming it. Of both weights `rows` are here; the losses are the
/// same on every rank that has a part of them.
DistillationLoss linear_distillation(const at::Tensor& hidden, const at::Tensor& weight,
                                     const at::Tensor& labels, const CrossEntropyOptions& options,
                                     const TeacherHead& teacher,
                                     const DistillationOptions& distillation,
                                     const VocabularyRows& rows);

}  // namespace automodel::kernels
