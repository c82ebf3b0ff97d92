#include "kernels/layers/norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/base/fused.h"
#include "kernels/base/made_again.h"
#include "kernels/cpu/loops.h"
#include "kernels/device/device_kernels.h"
#include "kernels/layers/layer_reference.h"
#include "tensor/dtype.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int64_t kNormRows = 64;

/// Forward over all rows; `residual` and `sum` are undefined or both defined.
void forward_rows(const at::Tensor& x, const at::Tensor& residual, at::Tensor& sum,
                  const at::Tensor& weight, at::Tensor& y, at::Tensor& rstd,
                  const NormOptions& options) {
  const int64_t dim = x.size(-1);
  const int64_t rows = x.numel() / dim;
  const device::DeviceKernels* const kernels = device::kernels_for({x, weight});
  by_storage(x, [&](auto storage) {
    using T = decltype(storage);
    const T* in = numbers_of<T>(x);
    const T* other = numbers_of<T>(residual);
    T* total = numbers_of<T>(sum);
    const T* w = numbers_of<T>(weight);
    T* out = numbers_of<T>(y);
    float* scales = rstd.data_ptr<float>();
    if (kernels != nullptr) {
      kernels->of<T>().rms_forward(in, other, total, w, out, scales, rows, dim,
                                   static_cast<float>(options.eps), options.adds_one);
      return;
    }
    at::parallel_for(0, rows, kNormRows, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * dim;
      cpu::loops().of<T>().rms_forward(in + at, other != nullptr ? other + at : nullptr,
                                       total != nullptr ? total + at : nullptr, w, out + at,
                                       scales + begin, end - begin, dim,
                                       static_cast<float>(options.eps), options.adds_one);
    });
  });
}

/// {dx, dw}; `d_sum` is undefined or added to dx. A device makes no dw of a weight that is not
/// trained.
std::pair<at::Tensor, at::Tensor> backward_rows(const at::Tensor& dy, const at::Tensor& x,
                                                const at::Tensor& weight, const at::Tensor& rstd,
                                                const at::Tensor& d_sum, bool adds_one,
                                                bool is_weight_trained) {
  const int64_t dim = x.size(-1);
  const int64_t rows = x.numel() / dim;
  const device::DeviceKernels* const kernels = device::kernels_for({x, weight});
  at::Tensor dx = at::empty_like(x);
  const at::Tensor dw = by_storage(x, [&](auto storage) {
    using T = decltype(storage);
    const T* grad = numbers_of<T>(dy);
    const T* in = numbers_of<T>(x);
    const T* w = numbers_of<T>(weight);
    const float* scales = rstd.data_ptr<float>();
    const T* other = numbers_of<T>(d_sum);
    T* out = numbers_of<T>(dx);
    if (kernels != nullptr) {
      const at::Tensor partials = is_weight_trained
                                      ? device::partials_for(kernels->most_partials(), x, rows, dim)
                                      : at::Tensor();
      kernels->of<T>().rms_backward(grad, in, w, scales, other, out, numbers_of<float>(partials),
                                    is_weight_trained ? partials.size(0) : 0, rows, dim, adds_one);
      return is_weight_trained ? partials.sum(0) : partials;
    }
    return sum_over_blocks(rows, dim, [&](int64_t begin, int64_t end, float* partial) {
      const int64_t at = begin * dim;
      cpu::loops().of<T>().rms_backward(grad + at, in + at, w, scales + begin,
                                        other != nullptr ? other + at : nullptr, out + at, partial,
                                        end - begin, dim, adds_one);
    });
  });
  return {std::move(dx), dw.defined() ? dw.to(weight.scalar_type()) : dw};
}

/// The y of forward_rows().
at::Tensor rms_again(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                     bool adds_one) {
  const int64_t dim = x.size(-1);
  at::Tensor y = at::empty_like(x);
  by_storage(x, [&](auto storage) {
    using T = decltype(storage);
    at::parallel_for(0, x.numel() / dim, kNormRows, [&](int64_t begin, int64_t end) {
      cpu::loops().of<T>().rms_again(numbers_of<T>(x) + begin * dim, numbers_of<T>(weight),
                                     rstd.data_ptr<float>() + begin, numbers_of<T>(y) + begin * dim,
                                     end - begin, dim, adds_one);
    });
  });
  return y;
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static constexpr uint32_t kOutputMadeAgain = 0;

  static at::Tensor again(AutogradContext& context) {
    const auto saved = context.get_saved_variables();
    return rms_again(saved[0], saved[1], saved[2], context.saved_data["adds_one"].toBool());
  }

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in,
                            const at::Tensor& weight, double eps, bool adds_one) {
    const at::Tensor x = x_in.contiguous();
    at::Tensor y = at::empty_like(x);
    at::Tensor rstd = at::empty({x.numel() / x.size(-1)}, x.options().dtype(at::kFloat));
    at::Tensor none;
    forward_rows(x, none, none, weight, y, rstd, {eps, adds_one});
    context->save_for_backward({x, weight, rstd});
    context->saved_data["adds_one"] = adds_one;
    return y;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    auto [dx, dw] =
        backward_rows(gradients[0].contiguous(), saved[0], saved[1], saved[2], at::Tensor(),
                      context->saved_data["adds_one"].toBool(), context->needs_input_grad(1));
    return {dx, dw, at::Tensor(), at::Tensor()};
  }
};

struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static constexpr uint32_t kOutputMadeAgain = 1;

  static at::Tensor again(AutogradContext& context) { return RmsNorm::again(context); }

  static tensor_list forward(AutogradContext* context, const at::Tensor& x_in,
                             const at::Tensor& residual, const at::Tensor& weight, double eps,
                             bool adds_one) {
    const at::Tensor x = x_in.contiguous();
    at::Tensor sum = at::empty_like(x);
    at::Tensor y = at::empty_like(x);
    at::Tensor rstd = at::empty({x.numel() / x.size(-1)}, x.options().dtype(at::kFloat));
    forward_rows(x, residual.contiguous(), sum, weight, y, rstd, {eps, adds_one});
    context->save_for_backward({sum, weight, rstd});
    context->saved_data["adds_one"] = adds_one;
    context->set_materialize_grads(false);
    return {sum, y};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor d_sum = gradients[0].defined() ? gradients[0].contiguous() : at::Tensor();
    if (!gradients[1].defined()) {
      return {d_sum, d_sum, at::Tensor(), at::Tensor(), at::Tensor()};
    }
    auto [dx, dw] =
        backward_rows(gradients[1].contiguous(), saved[0], saved[1], saved[2], d_sum,
                      context->saved_data["adds_one"].toBool(), context->needs_input_grad(2));
    return {dx, dx, dw, at::Tensor(), at::Tensor()};
  }
};

/// A norm of x, or of the sum of x and another tensor: {norm, sum}, the sum where it is made.
struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static constexpr uint32_t kOutputMadeAgain = 0;

  static at::Tensor again(AutogradContext& context) {
    const auto saved = context.get_saved_variables();
    const at::Tensor& x = saved[0];
    const int64_t dim = x.size(-1);
    at::Tensor y = at::empty_like(x);
    by_storage(x, [&](auto storage) {
      using T = decltype(storage);
      at::parallel_for(0, x.numel() / dim, kNormRows, [&](int64_t begin, int64_t end) {
        cpu::loops().of<T>().layer_again(numbers_of<T>(x) + begin * dim, numbers_of<T>(saved[1]),
                                         numbers_of<T>(saved[3]),
                                         saved[2].data_ptr<float>() + 2 * begin,
                                         numbers_of<T>(y) + begin * dim, end - begin, dim);
      });
    });
    return y;
  }

  static tensor_list forward(AutogradContext* context, const at::Tensor& x_in,
                             const std::optional<at::Tensor>& residual_in, const at::Tensor& weight,
                             const std::optional<at::Tensor>& bias, double eps) {
    const at::Tensor x = x_in.contiguous();
    const at::Tensor residual = residual_in ? residual_in->contiguous() : at::Tensor();
    const at::Tensor sum = residual_in ? at::empty_like(x) : at::Tensor();
    const at::Tensor b = bias ? bias->contiguous() : at::Tensor();
    const int64_t dim = x.size(-1);
    const int64_t rows = x.numel() / dim;
    at::Tensor y = at::empty_like(x);
    const at::Tensor moments = at::empty({rows, 2}, x.options().dtype(at::kFloat));
    by_storage(x, [&](auto storage) {
      using T = decltype(storage);
      const T* other = numbers_of<T>(residual);
      T* total = numbers_of<T>(sum);
      at::parallel_for(0, rows, kNormRows, [&](int64_t begin, int64_t end) {
        const int64_t at = begin * dim;
        cpu::loops().of<T>().layer_forward(
            numbers_of<T>(x) + at, other != nullptr ? other + at : nullptr,
            total != nullptr ? total + at : nullptr, numbers_of<T>(weight), numbers_of<T>(b),
            numbers_of<T>(y) + at, moments.data_ptr<float>() + 2 * begin, end - begin, dim,
            static_cast<float>(eps));
      });
    });
    context->save_for_backward({residual_in ? sum : x, weight, moments, b});
    context->saved_data["has_residual"] = residual_in.has_value();
    context->saved_data["has_bias"] = bias.has_value();
    context->set_materialize_grads(false);
    return residual_in ? tensor_list{y, sum} : tensor_list{y};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const bool has_residual = context->saved_data["has_residual"].toBool();
    at::Tensor d_sum;
    if (has_residual && gradients[1].defined()) d_sum = gradients[1].contiguous();
    const auto of_summands = [&](const at::Tensor& d) { return has_residual ? d : at::Tensor(); };
    if (!gradients[0].defined()) {
      return {d_sum, of_summands(d_sum), at::Tensor(), at::Tensor(), at::Tensor()};
    }
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor dy = gradients[0].contiguous();
    const int64_t dim = x.size(-1);
    at::Tensor dx = at::empty_like(x);
    const at::Tensor d_weights = by_storage(x, [&](auto storage) {
      using T = decltype(storage);
      const T* other = numbers_of<T>(d_sum);
      return sum_over_blocks(
          x.numel() / dim, 2 * dim, [&](int64_t begin, int64_t end, float* partial) {
            const int64_t at = begin * dim;
            cpu::loops().of<T>().layer_backward(
                numbers_of<T>(dy) + at, numbers_of<T>(x) + at, numbers_of<T>(weight),
                saved[2].data_ptr<float>() + 2 * begin, other != nullptr ? other + at : nullptr,
                numbers_of<T>(dx) + at, partial, end - begin, dim);
          });
    });
    const at::Tensor rounded = d_weights.to(weight.scalar_type());
    const bool has_bias = context->saved_data["has_bias"].toBool();
    return {dx, of_summands(dx), rounded.narrow(0, 0, dim),
            has_bias ? rounded.narrow(0, dim, dim) : at::Tensor(), at::Tensor()};
  }
};

std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// Whether one of the loops, a CPU's or a device's, takes RMSNorms of the tensors.
bool has_rows_path(std::initializer_list<at::Tensor> tensors) {
  return is_fusable(tensors) || device::kernels_for(tensors) != nullptr;
}

using Norms = NodesOf<RmsNorm, AddRmsNorm, LayerNorm>;

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, const NormOptions& options) {
  if (!has_rows_path({x, weight}) || x.numel() == 0) return rms_norm_reference(x, weight, options);
  return RmsNorm::apply(x, weight.contiguous(), options.eps, options.adds_one);
}

std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                                               const at::Tensor& weight,
                                               const NormOptions& options) {
  if (x.scalar_type() != residual.scalar_type()) {
    const at::ScalarType wide = at::promote_types(x.scalar_type(), residual.scalar_type());
    return add_rms_norm(x.to(wide), residual.to(wide), weight, options);
  }
  if (!has_rows_path({x, residual, weight}) || x.numel() == 0) {
    at::Tensor sum = x + residual;
    at::Tensor norm = rms_norm_reference(sum, weight, options);
    return {std::move(sum), std::move(norm)};
  }
  tensor_list out =
      AddRmsNorm::apply(x, residual, weight.contiguous(), options.eps, options.adds_one);
  return {out[0], out[1]};
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double eps) {
  if (!is_fusable({x, weight, bias}) || x.numel() == 0) {
    return layer_norm_reference(x, weight, bias, eps);
  }
  return LayerNorm::apply(x, std::nullopt, weight.contiguous(), if_defined(bias), eps)[0];
}

std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double eps) {
  if (!is_fusable({x, residual, weight, bias}) || x.numel() == 0) {
    at::Tensor sum = x + residual;
    at::Tensor norm = layer_norm_reference(sum, weight, bias, eps);
    return {std::move(sum), std::move(norm)};
  }
  tensor_list out = LayerNorm::apply(x, residual, weight.contiguous(), if_defined(bias), eps);
  return {out[1], out[0]};
}

at::Tensor unweighted_rms_norm(const at::Tensor& x, double eps) {
  const at::Tensor wide = x.to(tensor::wide_dtype(x.scalar_type()));
  return (wide * at::rsqrt(wide.square().mean(-1, true) + eps)).to(x.scalar_type());
}

bool has_normed(torch::autograd::Node& node, uint32_t output) {
  return Norms::has_made(node, output);
}

at::Tensor normed_again(torch::autograd::Node& node) {
  return Norms::again(node);
}

}  // namespace automodel::kernels
