#include "nn/classifier_head.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace automodel::nn {

at::Tensor ClassifierLossHead::loss(const at::Tensor& hidden, const at::Tensor& weight,
                                    const at::Tensor& labels,
                                    const kernels::CrossEntropyOptions& options) {
  {
    const at::NoGradGuard no_grad;
    const at::Tensor found =
        at::linear(hidden.detach().to(at::kFloat), weight.detach().to(at::kFloat)).argmax(-1);
    const at::Tensor counts = labels.ne(options.ignore_index);
    const at::Tensor num_labels = counts.sum();
    const at::Tensor num_right = found.eq(labels).logical_and(counts).sum();
    num_labels_ = num_labels_.defined() ? num_labels_.add(num_labels) : num_labels;
    num_right_ = num_right_.defined() ? num_right_.add(num_right) : num_right;
  }
  return plain_->loss(hidden, weight, labels, options);
}

void ClassifierLossHead::reset() {
  num_labels_ = at::Tensor();
  num_right_ = at::Tensor();
}

}  // namespace automodel::nn
