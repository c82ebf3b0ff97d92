#include "kernels/layers/normalized_rows.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tensor/dtype.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr double kShortest = 1e-12;

struct RowsOfLengthOne : torch::autograd::Function<RowsOfLengthOne> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    const at::ScalarType wide = tensor::wide_dtype(x.scalar_type());
    const at::Tensor lengths = at::linalg_vector_norm(x, 2, {-1}, true, wide);
    at::Tensor out = at::empty_like(x);
    at::div_out(out, x, lengths.clamp_min(kShortest));
    context->save_for_backward({x, lengths});
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& lengths = saved[1];
    const at::Tensor inverse = lengths.clamp_min(kShortest).reciprocal();
    // A change along a row changes its length alone, which does not show where the row is not too
    // short.
    const at::Tensor product = at::mul(x, gradients[0]);
    const at::Tensor along =
        product.sum(-1, true, lengths.scalar_type()) * inverse.pow(2) * lengths.gt(kShortest);
    at::Tensor dx = at::empty_like(x);
    at::mul_out(dx, x, along);
    at::sub_out(dx, gradients[0], dx);
    return {at::mul_out(dx, dx, inverse)};
  }
};

}  // namespace

at::Tensor rows_of_length_one(const at::Tensor& x) {
  return RowsOfLengthOne::apply(x);
}

}  // namespace automodel::kernels
