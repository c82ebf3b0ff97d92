#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "nn/loss_head.h"

namespace automodel::nn {

/// The passages of all ranks, with which each rank's queries are compared in training.
struct SharedPassages {
  /// The rows of all ranks, by rank; of equally many rows on each. Gradients go to this rank's rows
  /// at least. Every rank calls it, equally often.
  std::function<at::Tensor(const at::Tensor& own)> gather;
  int64_t rank = 0;

  explicit operator bool() const { return gather != nullptr; }
};

/// How queries and passages are compared.
struct RetrievalOptions {
  bool normalizes = true;      ///< embeddings are made of length 1, and the temperature acts
  double temperature = 1.0;    ///< divides scores
  SharedPassages shared = {};  ///< empty: a query is compared with the passages of its group
};

/// The loss of groups of texts, each a query and the passages behind it, first the one that answers
/// it: the cross-entropy of finding a query's answer among passages, where the score of two texts
/// is the product of their embeddings. Counts how well that went. Arithmetic is float32, or float64
/// for hidden states of it.
class RetrievalLossHead final : public LossHead {
 public:
  explicit RetrievalLossHead(RetrievalOptions options);

  std::shared_ptr<const kernels::VocabularyRows> rows() const override { return plain_->rows(); }

  /// Announces the next loss: how many groups its texts are, and whether a step is trained by it.
  void begin_batch(int64_t num_groups, bool is_training);

  /// Takes the hidden states [T, D] of whole groups' texts, in their order, and labels [T] of
  /// tensor/text_labels.h; the weight has no use.
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                  const kernels::CrossEntropyOptions& options) override;

  /// Since reset(), float64 scalars on the device: queries, those whose answer has the largest
  /// score (the first of several such passages), and the sum of 1 / the answer's rank. Undefined
  /// before a loss.
  const at::Tensor& num_queries() const { return num_queries_; }
  const at::Tensor& num_right() const { return num_right_; }
  const at::Tensor& reciprocal_ranks() const { return reciprocal_ranks_; }
  void reset();

 private:
  at::Tensor in_groups(const at::Tensor& texts) const;
  at::Tensor scores_of_all(const at::Tensor& queries, const at::Tensor& passages,
                           const at::Tensor& names, at::Tensor& answers) const;
  void count(const at::Tensor& scores, const at::Tensor& answers);

  RetrievalOptions options_;
  std::shared_ptr<LossHead> plain_;
  int64_t num_groups_ = 0;
  bool is_training_ = false;
  at::Tensor num_queries_, num_right_, reciprocal_ranks_;
};

}  // namespace automodel::nn
