#include "kernels/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

at::Tensor rows_of(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)}).to(at::kFloat);
}

struct LinearWidened : torch::autograd::Function<LinearWidened> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["has_bias"] = bias.has_value();
    const at::Tensor rows = rows_of(x);
    const at::Tensor columns = weight.to(at::kFloat).t();
    const at::Tensor product =
        bias ? at::addmm(bias->to(at::kFloat), rows, columns) : at::mm(rows, columns);
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = weight.size(0);
    return product.to(x.scalar_type()).view(sizes);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor gradient = rows_of(gradients[0]);
    at::Tensor d_x, d_weight, d_bias;
    if (context->needs_input_grad(0)) {
      d_x = at::mm(gradient, weight.to(at::kFloat)).to(x.scalar_type()).view(x.sizes());
    }
    if (context->needs_input_grad(1)) {
      d_weight = at::mm(gradient.t(), rows_of(x)).to(weight.scalar_type());
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      d_bias = gradient.sum(0).to(weight.scalar_type());
    }
    return {d_x, d_weight, d_bias};
  }
};

}  // namespace

bool has_fast_bfloat16_products() {
  return __builtin_cpu_supports("avx512bf16");  // every CPU with AMX has it too
}

at::Tensor linear_widened(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return LinearWidened::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const bool is_narrow = x.scalar_type() == at::kHalf ||
                         (x.scalar_type() == at::kBFloat16 && !has_fast_bfloat16_products());
  const bool is_same_type = x.scalar_type() == weight.scalar_type();
  if (x.device().is_cpu() && is_narrow && is_same_type) return linear_widened(x, weight, bias);
  return at::linear(x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

}  // namespace automodel::kernels
