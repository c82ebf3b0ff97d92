#pragma once

#include <functional>
#include <memory>

#include "kernels/distillation.h"
#include "nn/loss_head.h"

namespace automodel::nn {

/// A teacher's head: computes no loss, but hands what its logits are made of to somebody while the
/// weight is there. Labels say which tokens; they are not read.
class TeacherLossHead final : public LossHead {
 public:
  using User = std::function<void(const kernels::TeacherHead& head)>;

  /// Who is told by the next loss(), once.
  void tell(User user) { user_ = std::move(user); }

  /// Zero, after the user was told.
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                  const kernels::CrossEntropyOptions& options) override;

 private:
  User user_;
};

/// A student's head over the whole vocabulary on this rank: its loss is mixed of its labels' and of
/// a teacher's.
class StudentLossHead final : public LossHead {
 public:
  explicit StudentLossHead(const kernels::DistillationOptions& options) : options_(options) {}

  /// What the next loss() compares with; the tokens are the same, in the same order.
  void follow(kernels::TeacherHead teacher) { teacher_ = std::move(teacher); }

  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                  const kernels::CrossEntropyOptions& options) override;

  /// Sums of the losses' two parts since reset(), float64 on the device; undefined before a loss.
  const at::Tensor& ce() const { return ce_; }
  const at::Tensor& kd() const { return kd_; }
  void reset();

 private:
  kernels::DistillationOptions options_;
  kernels::TeacherHead teacher_;
  at::Tensor ce_;
  at::Tensor kd_;
};

}  // namespace automodel::nn
