#include "kernels/activation.h"

#include <ATen/ATen.h>

#include "core/error.h"

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
      return at::silu(x);
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

at::Tensor gated_activation(const at::Tensor& gate_up, Activation activation) {
  const int64_t half = gate_up.size(-1) / 2;
  return activate(gate_up.narrow(-1, 0, half), activation) * gate_up.narrow(-1, half, half);
}

}  // namespace automodel::kernels
