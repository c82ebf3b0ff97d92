#include "kernels/products/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/base/bound_gradient.h"
#include "kernels/base/fused.h"
#include "kernels/base/result_keeper.h"
#include "kernels/products/kept_input.h"
#include "kernels/products/product.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

at::Tensor rows_of(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)}).to(at::kFloat);
}

/// What is saved of the input: only a trained weight's gradient is made of it.
at::Tensor trained_input(AutogradContext& context, const at::Tensor& x, const at::Tensor& weight) {
  return weight.requires_grad() ? input_to_save(context, x) : at::Tensor();
}

std::vector<int64_t> input_sizes(const at::Tensor& gradient, const at::Tensor& weight) {
  std::vector<int64_t> sizes = gradient.sizes().vec();
  sizes.back() = weight.size(1);
  return sizes;
}

/// Every product in float32 from float16 operands, rounded once at the end; x and weight are saved
/// in 16 bits. `kept` is the product when it is there already, else null.
struct LinearWidened : torch::autograd::Function<LinearWidened> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor* kept) {
    context->save_for_backward({trained_input(*context, x, weight), weight});
    context->saved_data["has_bias"] = bias.has_value();
    if (kept != nullptr) return kept->detach();
    const at::Tensor rows = rows_of(x);
    at::Tensor out = product(rows, weight.to(at::kFloat).t());
    if (bias) out.add_(bias->to(at::kFloat));
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = weight.size(0);
    return out.to(x.scalar_type()).view(sizes);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const at::Tensor gradient = rows_of(gradients[0]);
    at::Tensor d_x, d_weight, d_bias;
    if (context->needs_input_grad(0)) {
      d_x = product(gradient, weight.to(at::kFloat))
                .to(weight.scalar_type())
                .view(input_sizes(gradients[0], weight));
    }
    if (context->needs_input_grad(1)) {
      const at::Tensor x = saved_input(*context, saved[0]);
      d_weight = product(gradient.t(), rows_of(x)).to(weight.scalar_type());
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      d_bias = gradient.sum(0).to(weight.scalar_type());
    }
    return {d_x, d_weight, d_bias, at::Tensor()};
  }
};

/// x weight^T + bias of one dtype.
at::Tensor product_of_rows(const at::Tensor& x, const at::Tensor& weight,
                           const std::optional<at::Tensor>& bias) {
  if (!is_fusable({x, weight})) return at::linear(x, weight, bias);
  const at::Tensor out =
      product(x.reshape({-1, x.size(-1)}), weight.t(), {.bias = bias.value_or(at::Tensor())});
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return out.view(sizes);
}

/// The gradient of a weight that `x` was multiplied with; of one that is stored [in, out] in that
/// layout. It is added where the weight's owner wants it, if that may be.
at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& x,
                           const at::Tensor& weight) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const at::Tensor bound = bound_gradient(weight);
  if (bound.defined() && is_fusable_product({gradient, rows, bound})) {
    if (bound.stride(1) == 1) {
      product_into(gradient.t(), rows, bound, {.adds = true});
      return added_gradient(weight);
    }
    if (bound.stride(0) == 1) {
      product_into(rows.t(), gradient, bound.t(), {.adds = true});
      return added_gradient(weight);
    }
  }
  return weight.is_contiguous() ? product(gradient.t(), rows) : product(rows.t(), gradient).t();
}

/// Operands of one dtype. `kept` is the product when it is there already, else null.
struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor* kept) {
    context->save_for_backward({trained_input(*context, x, weight), weight});
    context->saved_data["has_bias"] = bias.has_value();
    return kept != nullptr ? kept->detach() : product_of_rows(x, weight, bias);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const at::Tensor gradient = gradients[0].reshape({-1, gradients[0].size(-1)});
    at::Tensor d_x, d_weight, d_bias;
    if (context->needs_input_grad(0)) {
      d_x = product(gradient, weight).view(input_sizes(gradients[0], weight));
    }
    if (context->needs_input_grad(1)) {
      d_weight = weight_gradient(gradient, saved_input(*context, saved[0]), weight);
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      d_bias = gradient.sum(0);
    }
    return {d_x, d_weight, d_bias, at::Tensor()};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const std::optional<at::Tensor> offset = bias.defined() ? std::optional(bias) : std::nullopt;
  if (x.scalar_type() != weight.scalar_type()) return at::linear(x, weight, offset);  // its error
  const auto kept = take_result(ResultKind::kMatrixProduct);
  const at::Tensor* there = kept ? kept->data() : nullptr;
  at::Tensor out = is_slow_to_multiply(x) ? LinearWidened::apply(x, weight, offset, there)
                                          : Linear::apply(x, weight, offset, there);
  if (!kept) offer_result(ResultKind::kMatrixProduct, {out});
  return out;
}

}  // namespace automodel::kernels
