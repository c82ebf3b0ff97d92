#pragma once

#include <memory>

#include "kernels/loss/cross_entropy.h"
#include "kernels/loss/vocabulary_rows.h"

namespace automodel::nn {

/// The seam between the last hidden state and the loss: head and cross-entropy as one operation.
/// The local head holds the whole vocabulary; others split it over tensor-parallel ranks or keep
/// the head's unit gathered.
class LossHead {
 public:
  virtual ~LossHead() = default;

  /// Sum of cross-entropies divided by options.divisor, float32 scalar, differentiable.
  /// hidden [T, D], weight [V, D], labels [T] (shifted already).
  virtual at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight,
                          const at::Tensor& labels,
                          const kernels::CrossEntropyOptions& options) = 0;

  /// The rows of the vocabulary that the weight has, for a head that takes this one's place.
  virtual std::shared_ptr<const kernels::VocabularyRows> rows() const = 0;
};

/// A model whose logits can be rounded to a dtype before the loss, as a policy that casts a model's
/// outputs does.
class GivesLogits {
 public:
  virtual ~GivesLogits() = default;
  virtual void set_logits_dtype(at::ScalarType dtype) = 0;
};

/// The head over the whole vocabulary on this rank.
std::shared_ptr<LossHead> make_local_loss_head();

}  // namespace automodel::nn
