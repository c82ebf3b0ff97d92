#include "nn/classifier_head.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace automodel::nn {

at::Tensor ClassifierLossHead::loss(const at::Tensor& hidden, const at::Tensor& weight,
                                    const at::Tensor& labels,
                                    const kernels::CrossEntropyOptions& options) {
  {
    const at::NoGradGuard no_grad;
    at::Tensor rows = hidden.detach();
    at::Tensor wanted = labels;
    if (labels.is_cpu()) {  // a device would be waited for
      const at::Tensor places = labels.ne(options.ignore_index).nonzero().squeeze(1);
      rows = rows.index_select(0, places);
      wanted = labels.index_select(0, places);
    }
    const at::Tensor found =
        at::linear(rows.to(at::kFloat), weight.detach().to(at::kFloat)).argmax(-1);
    const at::Tensor counts = wanted.ne(options.ignore_index);
    const at::Tensor num_labels = counts.sum();
    const at::Tensor num_right = found.eq(wanted).logical_and(counts).sum();
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
