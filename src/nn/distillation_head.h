#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "kernels/loss/distillation.h"
#include "nn/loss_head.h"

namespace automodel::nn {

/// A teacher's head: computes no loss, but hands what its logits are made of to somebody while the
/// weight is there. Labels say which tokens; they are not read.
class TeacherLossHead final : public LossHead {
 public:
  /// `rows`: those of the head that it replaces.
  explicit TeacherLossHead(std::shared_ptr<const kernels::VocabularyRows> rows)
      : rows_(std::move(rows)) {}

  using User = std::function<void(const kernels::TeacherHead& head)>;

  /// Who is told by every loss() from now on.
  void tell(User user) { user_ = std::move(user); }

  /// Zero, after the user was told.
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                  const kernels::CrossEntropyOptions& options) override;
  std::shared_ptr<const kernels::VocabularyRows> rows() const override { return rows_; }

 private:
  std::shared_ptr<const kernels::VocabularyRows> rows_;
  User user_;
};

/// A student's head: its loss is mixed of its labels' and of a teacher's, whose weight has the same
/// rows of the vocabulary.
class StudentLossHead final : public LossHead {
 public:
  /// `rows`: those of the head that it replaces.
  StudentLossHead(const kernels::DistillationOptions& options,
                  std::shared_ptr<const kernels::VocabularyRows> rows)
      : options_(options), rows_(std::move(rows)) {}

  /// What the next loss() compares with; the tokens are the same, in the same order.
  void follow(kernels::TeacherHead teacher) { teacher_ = std::move(teacher); }

  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                  const kernels::CrossEntropyOptions& options) override;
  std::shared_ptr<const kernels::VocabularyRows> rows() const override { return rows_; }

  /// Sums of the losses' two parts since reset(), float64 on the device; undefined before a loss.
  const at::Tensor& ce() const { return ce_; }
  const at::Tensor& kd() const { return kd_; }
  void reset();

 private:
  kernels::DistillationOptions options_;
  std::shared_ptr<const kernels::VocabularyRows> rows_;
  kernels::TeacherHead teacher_;
  at::Tensor ce_;
  at::Tensor kd_;
};

}  // namespace automodel::nn
