#include "kernels/base/bound_gradient.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

namespace automodel::kernels {

namespace {

bool has_dense_gradient(const at::Tensor& leaf) {
  return leaf.is_leaf() && leaf.grad().defined() && leaf.grad().layout() == at::kStrided &&
         leaf.grad().scalar_type() == leaf.scalar_type() &&
         torch::autograd::impl::hooks(leaf).empty();
}

/// Whether `view` is the transposed of all of `base`.
bool is_transposed(const at::Tensor& view, const at::Tensor& base) {
  return view.dim() == 2 && base.dim() == 2 && view.storage_offset() == base.storage_offset() &&
         view.sizes() == base.t().sizes() && view.strides() == base.t().strides();
}

bool adds_to_all_gradients() {
  const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
  return !at::GradMode::is_enabled() && wanted != nullptr && wanted->empty();
}

}  // namespace

at::Tensor bound_gradient(const at::Tensor& weight) {
  if (!adds_to_all_gradients()) return {};
  if (weight.is_leaf()) return has_dense_gradient(weight) ? weight.grad() : at::Tensor();
  if (!weight.is_view()) return {};
  const at::Tensor base(weight._base());
  if (!has_dense_gradient(base) || !is_transposed(weight, base)) return {};
  return base.grad().t();
}

at::Tensor added_gradient(const at::Tensor& weight) {
  const at::TensorOptions options = weight.options();
  return at::_sparse_coo_tensor_unsafe(at::empty({weight.dim(), 0}, options.dtype(at::kLong)),
                                       at::empty({0}, options), weight.sizes(),
                                       options.layout(at::kSparse), true);
}

}  // namespace automodel::kernels
