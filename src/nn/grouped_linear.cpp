#include "nn/grouped_linear.h"

#include <ATen/ATen.h>

#include "tensor/shard_spec.h"

namespace automodel::nn {

GroupedLinear::GroupedLinear(const GroupedLinearOptions& options, at::ScalarType dtype)
    : options_(options) {
  weight_ = register_parameter(
      "weight",
      tensor::placeholder({options.num_groups * options.out_features, options.in_features}, dtype));
}

at::Tensor GroupedLinear::forward(const at::Tensor& x) const {
  const int64_t groups = options_.num_groups;
  const at::Tensor weight = product_dtype_.of(weight_).unflatten(0, {groups, -1});
  const at::Tensor in = product_dtype_.of(x).to(weight.scalar_type());
  const at::Tensor rows = in.reshape({-1, groups, options_.in_features}).transpose(0, 1);
  const at::Tensor out = at::bmm(rows, weight.transpose(1, 2)).transpose(0, 1);
  return out.reshape({x.size(0), x.size(1), groups * options_.out_features});
}

}  // namespace automodel::nn
