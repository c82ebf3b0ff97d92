#include "kernels/layers/activation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "core/divide.h"
#include "core/error.h"
#include "kernels/base/fused.h"
#include "kernels/base/made_again.h"
#include "kernels/base/pointwise.h"
#include "kernels/cpu/loops.h"
#include "kernels/device/device_kernels.h"
#include "kernels/layers/layer_reference.h"

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

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int64_t kActivationRows = 32;

/// act(gate) * up by a loop.
at::Tensor gate_by_loop(const at::Tensor& gate_up, int act) {
  const int64_t half = gate_up.size(-1) / 2;
  std::vector<int64_t> sizes = gate_up.sizes().vec();
  sizes.back() = half;
  at::Tensor out = at::empty(sizes, gate_up.options());
  const device::DeviceKernels* const kernels = device::kernels_for({gate_up});
  by_storage(gate_up, [&](auto storage) {
    using T = decltype(storage);
    const T* in = numbers_of<T>(gate_up);
    T* result = numbers_of<T>(out);
    if (kernels != nullptr) {
      kernels->of<T>().gated_forward(in, result, out.numel() / half, half, act);
      return;
    }
    at::parallel_for(0, out.numel() / half, kActivationRows, [&](int64_t begin, int64_t end) {
      cpu::loops().of<T>().gated_forward(in + begin * 2 * half, result + begin * half, end - begin,
                                         half, act);
    });
  });
  return out;
}

struct GatedActivation : torch::autograd::Function<GatedActivation> {
  static constexpr uint32_t kOutputMadeAgain = 0;

  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up_in, int64_t act) {
    const at::Tensor gate_up = gate_up_in.contiguous();
    context->save_for_backward({gate_up});
    context->saved_data["act"] = act;
    return gate_by_loop(gate_up, static_cast<int>(act));
  }

  static at::Tensor again(AutogradContext& context) {
    return gate_by_loop(context.get_saved_variables()[0],
                        static_cast<int>(context.saved_data["act"].toInt()));
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
    const device::DeviceKernels* const kernels = device::kernels_for({gate_up});
    by_storage(gate_up, [&](auto storage) {
      using T = decltype(storage);
      const T* in = numbers_of<T>(gate_up);
      const T* grad = numbers_of<T>(d_out);
      T* result = numbers_of<T>(d_gate_up);
      if (kernels != nullptr) {
        kernels->of<T>().gated_backward(grad, in, result, d_out.numel() / half, half, act);
        return;
      }
      at::parallel_for(0, d_out.numel() / half, kActivationRows, [&](int64_t begin, int64_t end) {
        cpu::loops().of<T>().gated_backward(grad + begin * half, in + begin * 2 * half,
                                            result + begin * 2 * half, end - begin, half, act);
      });
    });
    return d_gate_up;
  }
};

/// Which of the loops of one operand; nullopt: ATen's operation.
std::optional<int> loop_of(Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return 0;
    case Activation::kGeluTanh:
      return 1;
    case Activation::kReluSquared:
      return 2;
    case Activation::kSilu:
    case Activation::kRelu:
      return std::nullopt;
  }
  AM_CHECK(false);
}

/// Calls body(begin, count) for blocks of fixed size on all threads, so that what remains of
/// vectors is the same numbers on any number of them.
template <typename Body>
void by_blocks(int64_t numel, const Body& body) {
  constexpr int64_t kBlock = int64_t{1} << 14;
  at::parallel_for(0, ceil_div(numel, kBlock), 1, [&](int64_t first, int64_t last) {
    for (int64_t begin = first * kBlock; begin < std::min(numel, last * kBlock); begin += kBlock) {
      body(begin, std::min(kBlock, numel - begin));
    }
  });
}

at::Tensor activate_by_loop(const at::Tensor& x, int act) {
  at::Tensor out = at::empty_like(x);
  by_storage(x, [&](auto storage) {
    using T = decltype(storage);
    by_blocks(x.numel(), [&](int64_t begin, int64_t count) {
      cpu::loops().of<T>().activate(numbers_of<T>(x) + begin, numbers_of<T>(out) + begin, count,
                                    act);
    });
  });
  return out;
}

void activate_backward_by_loop(const at::Tensor& d_out, const at::Tensor& x, const at::Tensor& dx,
                               int act) {
  by_storage(x, [&](auto storage) {
    using T = decltype(storage);
    by_blocks(x.numel(), [&](int64_t begin, int64_t count) {
      cpu::loops().of<T>().activate_backward(numbers_of<T>(d_out) + begin, numbers_of<T>(x) + begin,
                                             numbers_of<T>(dx) + begin, count, act);
    });
  });
}

struct Activated : torch::autograd::Function<Activated> {
  static constexpr uint32_t kOutputMadeAgain = 0;

  static at::Tensor again(AutogradContext& context) {
    return activate_by_loop(context.get_saved_variables()[0],
                            static_cast<int>(context.saved_data["act"].toInt()));
  }

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in, int64_t act) {
    const at::Tensor x = x_in.contiguous();
    context->save_for_backward({x});
    context->saved_data["act"] = act;
    return activate_by_loop(x, static_cast<int>(act));
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    at::Tensor dx = at::empty_like(x);
    activate_backward_by_loop(gradients[0].contiguous(), x, dx,
                              static_cast<int>(context->saved_data["act"].toInt()));
    return {dx, at::Tensor()};
  }
};

bool has_gated_loop(std::initializer_list<at::Tensor> tensors, Activation activation) {
  const bool has_loop = activation == Activation::kSilu || activation == Activation::kGeluTanh;
  return has_loop && tensors.begin()->numel() > 0 &&
         (is_fusable(tensors) || device::kernels_for(tensors) != nullptr);
}

int loop_index(Activation activation) {
  return activation == Activation::kSilu ? 0 : 1;
}

}  // namespace

at::Tensor activate(const at::Tensor& x, Activation activation) {
  const auto act = loop_of(activation);
  if (!act || !is_fusable({x}) || x.numel() == 0) return activate_reference(x, activation);
  return Activated::apply(x, *act);
}

at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation) {
  if (!has_gated_loop({gate_up}, activation))
    return gated_activation_reference(gate_up, activation);
  return GatedActivation::apply(gate_up, loop_index(activation));
}

at::Tensor activate_backward(const at::Tensor& d_out, const at::Tensor& x, Activation activation) {
  const auto act = loop_of(activation);
  if (act && is_fusable({d_out, x}) && x.is_contiguous() && d_out.is_contiguous()) {
    at::Tensor dx = at::empty_like(x);
    activate_backward_by_loop(d_out, x, dx, *act);
    return dx;
  }
  switch (activation) {
    case Activation::kSilu:
      return kernels::silu_backward(d_out, x);
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
  if (has_gated_loop({gate_up, d_out}, activation)) {
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

GateBounds bounds_behind_silu(double limit) {
  if (limit == 0) return {};
  AM_CHECK(limit > 0, limit);
  double x = limit + 1;  // above the root, as silu(x) >= x - 0.28; nearly straight down to it
  for (int step = 0; step < 100; ++step) {
    const double share = 1 / (1 + std::exp(-x));
    const double next = x - (x * share - limit) / (share * (1 + x * (1 - share)));
    if (next == x) break;
    x = next;
  }
  return {x, limit};
}

at::Tensor bounded_gate_up(const at::Tensor& gate_up, const GateBounds& bounds) {
  if (!bounds.are_there()) return gate_up;
  const int64_t half = gate_up.size(-1) / 2;
  return at::cat({gate_up.narrow(-1, 0, half).clamp_max(bounds.gate),
                  gate_up.narrow(-1, half, half).clamp(-bounds.up, bounds.up)},
                 -1);
}

at::Tensor bounded_gate_up_backward(const at::Tensor& d_out, const at::Tensor& gate_up,
                                    const GateBounds& bounds) {
  if (!bounds.are_there()) return d_out;
  const int64_t half = gate_up.size(-1) / 2;
  const at::Tensor is_cut = at::cat({gate_up.narrow(-1, 0, half).gt(bounds.gate),
                                     gate_up.narrow(-1, half, half).abs().gt(bounds.up)},
                                    -1);
  return d_out.masked_fill(is_cut, 0);
}

bool has_activated(torch::autograd::Node& node, uint32_t output) {
  return NodesOf<Activated, GatedActivation>::has_made(node, output);
}

at::Tensor activated_again(torch::autograd::Node& node) {
  return NodesOf<Activated, GatedActivation>::again(node);
}

}  // namespace automodel::kernels
