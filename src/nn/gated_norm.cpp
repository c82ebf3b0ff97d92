#include "nn/gated_norm.h"

#include <ATen/ATen.h>

#include "kernels/base/pointwise.h"
#include "kernels/layers/norm.h"
#include "tensor/dtype.h"
#include "tensor/shard_spec.h"

namespace automodel::nn {

GatedNorm::GatedNorm(const GatedNormOptions& options, at::ScalarType dtype) : options_(options) {
  weight_ = register_parameter("weight", tensor::placeholder({options.dim}, dtype));
}

at::Tensor GatedNorm::forward(const at::Tensor& x, const at::Tensor& gate) const {
  const at::ScalarType wide = tensor::wide_dtype(x.scalar_type());
  const at::Tensor factor =
      options_.is_sigmoid ? kernels::sigmoid(gate.to(wide)) : kernels::silu(gate.to(wide));
  const at::Tensor in = options_.is_gated_first ? x.to(wide) * factor : x.to(wide);
  const at::Tensor weight = weight_.to(wide);
  at::Tensor out;
  if (options_.num_groups == 1) {
    out = kernels::rms_norm(in.contiguous(), weight, {options_.eps});
  } else {
    const at::Tensor groups = in.unflatten(-1, {options_.num_groups, -1});
    const at::Tensor ones = at::ones({groups.size(-1)}, in.options());
    out = kernels::rms_norm(groups.contiguous(), ones, {options_.eps}).flatten(-2) * weight;
  }
  return (options_.is_gated_first ? out : out * factor).to(x.scalar_type());
}

}  // namespace automodel::nn
