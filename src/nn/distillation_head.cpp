#include "nn/distillation_head.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"

namespace automodel::nn {

at::Tensor TeacherLossHead::loss(const at::Tensor& hidden, const at::Tensor& weight,
                                 const at::Tensor&, const kernels::CrossEntropyOptions& options) {
  AM_CHECK(user_ != nullptr, "nobody is taught");
  user_({hidden, weight, options});
  return at::zeros({}, hidden.options().dtype(at::kFloat));
}

at::Tensor StudentLossHead::loss(const at::Tensor& hidden, const at::Tensor& weight,
                                 const at::Tensor& labels,
                                 const kernels::CrossEntropyOptions& options) {
  AM_CHECK(teacher_.hidden.defined(), "no teacher is followed");
  const kernels::TeacherHead teacher = std::exchange(teacher_, {});
  const kernels::DistillationLoss loss =
      kernels::linear_distillation(hidden, weight, labels, options, teacher, options_, *rows_);
  ce_ = ce_.defined() ? ce_.add(loss.ce) : loss.ce;
  kd_ = kd_.defined() ? kd_.add(loss.kd) : loss.kd;
  return loss.total;
}

void StudentLossHead::reset() {
  ce_ = at::Tensor();
  kd_ = at::Tensor();
}

}  // namespace automodel::nn
