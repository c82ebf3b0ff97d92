#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace torch::autograd {
struct Node;
}

namespace automodel::kernels {

/// Activation functions of MLPs, by Hugging Face's names.
enum class Activation {
  kSilu,        ///< "silu", "swish"
  kGelu,        ///< "gelu", exact
  kGeluTanh,    ///< "gelu_pytorch_tanh", "gelu_new", "gelu_fast"
  kRelu,        ///< "relu"
  kReluSquared  ///< "relu2"
};

/// nullopt for an unknown name.
std::optional<Activation> parse_activation(std::string_view name);

/// Element-wise activation.
at::Tensor activate(const at::Tensor& x, Activation activation);

/// act(gate) * up. gate_up [..., 2 I] holds the gate's I columns, then up's. Returns [..., I].
at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation);

/// The gradient of gate_up from that of gated_activation's result; for functions that have their
/// own backward.
at::Tensor gated_activation_backward(const at::Tensor& d_out, const at::Tensor& gate_up,
                                     Activation activation);

/// Bounds of what a gated activation reads: of the gate from above, of |up|. Zeros: none.
struct GateBounds {
  double gate = 0;
  double up = 0;

  bool are_there() const { return up > 0; }
  bool operator==(const GateBounds&) const = default;
};

/// Bounds that make silu(gate) at most `limit`, and |up| (Step 3.5); none for a limit of 0. silu
/// rises wherever it is above 0, so that a bound of its result is one of what it reads.
GateBounds bounds_behind_silu(double limit);

/// gate_up [..., 2 I] with the gate's and up's columns within the bounds; gate_up itself without
/// any. Differentiable; numbers beyond a bound get no gradient.
at::Tensor bounded_gate_up(const at::Tensor& gate_up, const GateBounds& bounds);

/// The gradient of gate_up from that of bounded_gate_up's result; for functions that have their own
/// backward.
at::Tensor bounded_gate_up_backward(const at::Tensor& d_out, const at::Tensor& gate_up,
                                    const GateBounds& bounds);

/// The gradient of x from that of activate's result.
at::Tensor activate_backward(const at::Tensor& d_out, const at::Tensor& x, Activation activation);

/// Whether the autograd node has returned a tensor as its output `output` that is the result of
/// activate or gated_activation by a loop, and can make it again (kept_input.h).
bool has_activated(torch::autograd::Node& node, uint32_t output);
/// The result of such a node, to the bit. In backward only, before the node's own.
at::Tensor activated_again(torch::autograd::Node& node);

}  // namespace automodel::kernels
