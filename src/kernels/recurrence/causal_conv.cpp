#include "kernels/recurrence/causal_conv.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "tensor/dtype.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// The positions from `begin` on, `count` of them.
at::Tensor positions(const at::Tensor& x, int64_t begin, int64_t count) {
  return x.narrow(1, begin, count);
}

/// Where positions and those `lag` before them lie in one run: [B, S - lag, 1]; or undefined.
at::Tensor same_run(const at::Tensor& runs, int64_t lag, at::ScalarType dtype) {
  if (!runs.defined() || lag == 0) return {};
  const int64_t count = runs.size(1) - lag;
  return positions(runs, lag, count).eq(positions(runs, 0, count)).unsqueeze(-1).to(dtype);
}

at::Tensor masked(const at::Tensor& x, const at::Tensor& mask) {
  return mask.defined() ? x * mask : x;
}

struct CausalConv : torch::autograd::Function<CausalConv> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& given_bias,
                            const std::optional<at::Tensor>& given_runs) {
    const at::Tensor bias = given_bias.value_or(at::Tensor());
    const at::Tensor runs = given_runs.value_or(at::Tensor());
    context->save_for_backward({x, weight, runs});
    context->saved_data["has_bias"] = bias.defined();
    const at::ScalarType dtype = tensor::wide_dtype(x.scalar_type());
    const int64_t length = x.size(1);
    const int64_t num_taps = weight.size(2);
    const at::Tensor taps = weight.squeeze(1).t().to(dtype);  // [K, C]
    at::Tensor out = x * taps[num_taps - 1];
    if (bias.defined()) out.add_(bias.to(dtype));
    for (int64_t lag = 1; lag < std::min(num_taps, length); ++lag) {
      const at::Tensor before = positions(x, 0, length - lag).to(dtype);
      positions(out, lag, length - lag)
          .addcmul_(masked(before, same_run(runs, lag, dtype)), taps[num_taps - 1 - lag]);
    }
    return out.to(x.scalar_type());
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &runs = saved[2];
    const at::ScalarType dtype = tensor::wide_dtype(x.scalar_type());
    const int64_t length = x.size(1);
    const int64_t num_taps = weight.size(2);
    const at::Tensor taps = weight.squeeze(1).t().to(dtype);
    const at::Tensor d_out = gradients[0].to(dtype);
    at::Tensor d_x = d_out * taps[num_taps - 1];
    at::Tensor d_taps = at::zeros_like(taps, at::MemoryFormat::Contiguous);
    d_taps[num_taps - 1].copy_((d_out * x).sum(at::IntArrayRef{0, 1}));
    for (int64_t lag = 1; lag < std::min(num_taps, length); ++lag) {
      const int64_t count = length - lag;
      const at::Tensor d_later = masked(positions(d_out, lag, count), same_run(runs, lag, dtype));
      positions(d_x, 0, count).addcmul_(d_later, taps[num_taps - 1 - lag]);
      d_taps[num_taps - 1 - lag].copy_(
          (d_later * positions(x, 0, count)).sum(at::IntArrayRef{0, 1}));
    }
    at::Tensor d_bias;
    if (context->saved_data["has_bias"].toBool()) {
      d_bias = d_out.sum(at::IntArrayRef{0, 1}).to(weight.scalar_type());
    }
    return {d_x.to(x.scalar_type()), d_taps.t().unsqueeze(1).to(weight.scalar_type()), d_bias,
            at::Tensor()};
  }
};

}  // namespace

at::Tensor causal_conv(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const at::Tensor& runs) {
  const auto given = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return CausalConv::apply(x, weight, given(bias), given(runs));
}

}  // namespace automodel::kernels
