#include "kernels/activation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"
#include "kernels/cpu/loops.h"
#include "kernels/fused.h"
#include "kernels/pointwise.h"
#include "kernels/reference.h"

namespace automodel::kernels {

std::optional<Activation> parse_activation(std::string_view name) {
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast") {
    return Activation::kGeluTanh;
  }
  if (name == "relu") return Activation::kRelu;
  if (name == "relu2") return Activation::kReluSquared;
  return std::nullopt;
}

at::Tensor activate(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return silu(x);
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kReluSquared:
      return at::relu(x).pow(2);
  }
  AM_CHECK(false);
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int64_t kActivationRows = 32;

struct GatedActivation : torch::autograd::Function<GatedActivation> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up_in, int64_t act) {
    const at::Tensor gate_up = gate_up_in.contiguous();
    const int64_t half = gate_up.size(-1) / 2;
    std::vector<int64_t> sizes = gate_up.sizes().vec();
    sizes.back() = half;
    at::Tensor out = at::empty(sizes, gate_up.options());
    by_storage(gate_up, [&](auto storage) {
      using T = decltype(storage);
      const T* in = numbers_of<T>(gate_up);
      T* result = numbers_of<T>(out);
      at::parallel_for(0, out.numel() / half, kActivationRows, [&](int64_t begin, int64_t end) {
        cpu::loops().of<T>().gated_forward(in + begin * 2 * half, result + begin * half,
                                           end - begin, half, static_cast<int>(act));
      });
    });
    context->save_for_backward({gate_up});
    context->saved_data["act"] = act;
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const at::Tensor gate_up = context->get_saved_variables()[0];
    const auto act = static_cast<int>(context->saved_data["act"].toInt());
    return {fused_backward(gradients[0], gate_up, act), at::Tensor()};
  }

  static at::Tensor fused_backward(const at::Tensor& gradient, const at::Tensor& gate_up, int act) {
    const at::Tensor d_out = gradient.contiguous();
    const int64_t half = gate_up.size(-1) / 2;
    at::Tensor d_gate_up = at::empty_like(gate_up);
    by_storage(gate_up, [&](auto storage) {
      using T = decltype(storage);
      const T* in = numbers_of<T>(gate_up);
      const T* grad = numbers_of<T>(d_out);
      T* result = numbers_of<T>(d_gate_up);
      at::parallel_for(0, d_out.numel() / half, kActivationRows, [&](int64_t begin, int64_t end) {
        cpu::loops().of<T>().gated_backward(grad + begin * half, in + begin * 2 * half,
                                            result + begin * 2 * half, end - begin, half, act);
      });
    });
    return d_gate_up;
  }
};

bool has_gated_loop(const at::Tensor& gate_up, Activation activation) {
  const bool has_loop = activation == Activation::kSilu || activation == Activation::kGeluTanh;
  return has_loop && is_fusable({gate_up}) && gate_up.numel() > 0;
}

int loop_index(Activation activation) {
  return activation == Activation::kSilu ? 0 : 1;
}

}  // namespace

at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation) {
  if (!has_gated_loop(gate_up, activation)) return gated_activation_reference(gate_up, activation);
  return GatedActivation::apply(gate_up, loop_index(activation));
}

at::Tensor activate_backward(const at::Tensor& d_out, const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return silu_backward(d_out, x);
    case Activation::kGelu:
      return at::gelu_backward(d_out, x);
    case Activation::kGeluTanh:
      return at::gelu_backward(d_out, x, "tanh");
    case Activation::kRelu:
      return at::threshold_backward(d_out, x, 0);
    case Activation::kReluSquared:
      return d_out * at::relu(x) * 2;
  }
  AM_CHECK(false);
}

at::Tensor gated_activation_backward(const at::Tensor& d_out, const at::Tensor& gate_up,
                                     Activation activation) {
  if (has_gated_loop(gate_up, activation) && is_fusable({gate_up, d_out})) {
    return GatedActivation::fused_backward(d_out, gate_up.contiguous(), loop_index(activation));
  }
  const int64_t half = gate_up.size(-1) / 2;
  const at::Tensor gate = gate_up.narrow(-1, 0, half);
  const at::Tensor up = gate_up.narrow(-1, half, half);
  at::Tensor d_gate_up = at::empty_like(gate_up);
  d_gate_up.narrow(-1, 0, half).copy_(activate_backward(d_out * up, gate, activation));
  d_gate_up.narrow(-1, half, half).copy_(d_out * activate(gate, activation));
  return d_gate_up;
}

}  // namespace automodel::kernels
