#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace automodel::kernels {

/// The rows of a vocabulary that the weight of a head holds, and what is computed over all rows
/// when other ranks hold the rest. Logits [n, rows] are of this rank's rows. Every rank that has a
/// part of the rows calls every function, in the same order.
class VocabularyRows {
 public:
  virtual ~VocabularyRows() = default;

  /// The token of the first row.
  virtual int64_t first() const = 0;
  /// Tokens of the whole vocabulary, by the weight of a head over it.
  virtual int64_t vocab_size(const at::Tensor& weight) const = 0;
  /// The rows of a head's weight that are in use: the rest is padding.
  virtual at::Tensor of(const at::Tensor& weight) const = 0;
  /// This rank's part of a weight over the whole vocabulary, laid out as a head's.
  virtual at::Tensor part_of(const at::Tensor& whole) const = 0;
  /// log softmax over the whole vocabulary; memory of its own.
  virtual at::Tensor log_softmax(const at::Tensor& logits) const = 0;
  /// Adds up the ranks' numbers, in place.
  virtual void sum(const at::Tensor& numbers) const = 0;
  /// Adds up, in place, the ranks' gradients of a head's input, each through its own rows. Does
  /// nothing where the operation that made the input adds them up.
  virtual void sum_input_gradient(const at::Tensor& gradient) const = 0;
};

/// A vocabulary of which this rank holds every row.
std::shared_ptr<const VocabularyRows> whole_vocabulary();

}  // namespace automodel::kernels
