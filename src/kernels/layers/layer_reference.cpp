#include "kernels/layers/layer_reference.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "kernels/base/pointwise.h"
#include "tensor/dtype.h"

namespace automodel::kernels {

at::Tensor rms_norm_reference(const at::Tensor& x, const at::Tensor& weight,
                              const NormOptions& options) {
  const at::ScalarType wide_type = tensor::wide_dtype(x.scalar_type());
  const at::Tensor wide = x.to(wide_type);
  const at::Tensor scale = at::rsqrt(wide.pow(2).mean(-1, true) + options.eps);
  at::Tensor w = weight.to(wide_type);
  if (options.adds_one) w = w + 1.0;
  return (wide * scale * w).to(at::promote_types(x.scalar_type(), weight.scalar_type()));
}

at::Tensor layer_norm_reference(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias, double eps) {
  const at::ScalarType wide = at::promote_types(x.scalar_type(), weight.scalar_type());
  return at::layer_norm(x.to(wide), {x.size(-1)}, weight.to(wide),
                        bias.defined() ? bias.to(wide) : bias, eps);
}

at::Tensor activate_reference(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return kernels::silu(x);
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

at::Tensor gated_activation_reference(const at::Tensor& gate_up, Activation activation) {
  const int64_t half = gate_up.size(-1) / 2;
  return activate_reference(gate_up.narrow(-1, 0, half), activation) *
         gate_up.narrow(-1, half, half);
}

Qkv split_norm_rotate_reference(const at::Tensor& qkv, const QkvOptions& options) {
  const int64_t batch = qkv.size(0);
  const int64_t length = qkv.size(1);
  const int64_t q_size = options.num_heads * options.head_dim;
  const int64_t kv_size = options.num_kv_heads * options.head_dim;
  const auto heads = [&](int64_t begin, int64_t size, int64_t count) {
    return qkv.narrow(-1, begin, size).reshape({batch, length, count, options.head_dim});
  };
  Qkv out{heads(0, q_size, options.num_heads), heads(q_size, kv_size, options.num_kv_heads),
          heads(q_size + kv_size, kv_size, options.num_kv_heads)};
  if (options.q_norm.defined()) out.q = rms_norm_reference(out.q, options.q_norm, options.norm);
  if (options.k_norm.defined()) out.k = rms_norm_reference(out.k, options.k_norm, options.norm);
  if (options.rope.is_defined()) {
    out.q = rotate(out.q, options.rope, options.position_ids);
    out.k = rotate(out.k, options.rope, options.position_ids);
  }
  return out;
}

}  // namespace automodel::kernels
