#pragma once

#include <memory>
#include <utility>

#include "nn/loss_head.h"

namespace automodel::nn {

/// The head of a model that classifies sequences: the loss of the head that it replaces, and how
/// many classes were found.
class ClassifierLossHead final : public LossHead {
 public:
  /// `plain`: the head that it replaces, which has a row for every class.
  explicit ClassifierLossHead(std::shared_ptr<LossHead> plain) : plain_(std::move(plain)) {}

  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                  const kernels::CrossEntropyOptions& options) override;
  std::shared_ptr<const kernels::VocabularyRows> rows() const override { return plain_->rows(); }

  /// Since reset(), int64 scalars on the device: labels that count, and those among them whose
  /// class has the largest logit, the first of several. Undefined before a loss.
  const at::Tensor& num_labels() const { return num_labels_; }
  const at::Tensor& num_right() const { return num_right_; }
  void reset();

 private:
  std::shared_ptr<LossHead> plain_;
  at::Tensor num_labels_;
  at::Tensor num_right_;
};

}  // namespace automodel::nn
