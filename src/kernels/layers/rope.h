#pragma once

#include <ATen/core/Tensor.h>
#include "kernels/layers/norm.h"

namespace torch::autograd {
struct Node;
}

namespace automodel::kernels {

/// Cosines and sines of rotary positions, float32, already multiplied by the attention factor.
struct RopeTable {
  at::Tensor cos;  ///< [P, R / 2]: position p, frequency i; R = number of rotated leading dims
  at::Tensor sin;  ///< [P, R / 2]
  /// [P]: float32 factors by which queries must be multiplied after rotation; undefined: none
  at::Tensor query_scale;

  bool is_defined() const { return cos.defined(); }
};

/// Options for turning the fused q, k, v projection's result into attention's inputs.
struct QkvOptions {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  at::Tensor q_norm;        ///< [head_dim]: RMSNorm of every head before the rotation; or undefined
  at::Tensor k_norm;        ///< [head_dim]; or undefined
  NormOptions norm;         ///< of q_norm and k_norm
  RopeTable rope;           ///< undefined tensors: no rotation
  at::Tensor position_ids;  ///< [B, S] int64; undefined: 0, 1, ... in every sequence
};

/// The heads of one attention layer: q [B, S, N, H], k and v [B, S, K, H]. The last dim is
/// contiguous; other strides may be any.
struct Qkv {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

/// Splits qkv [B, S, (N + 2 K) H] into heads, norms q and k per head, and rotates them: the first
/// R dims of every head in halves (x1 cos - x2 sin, x2 cos + x1 sin), in float32. Differentiable in
/// qkv, q_norm and k_norm.
Qkv split_norm_rotate(const at::Tensor& qkv, const QkvOptions& options);

/// Whether q, k and v are as split_norm_rotate() has returned them, by the CPU's loops and with
/// norms, for whose backward it keeps its input: then q's node makes all three again.
bool can_split_again(const Qkv& heads);

/// The heads that a call of split_norm_rotate() returned, to the bit; `node` is that call's.
Qkv split_again(torch::autograd::Node& node);

/// The rotation alone: x [B, S, N, H]; the first R dims are rotated.
at::Tensor rotate(const at::Tensor& x, const RopeTable& rope, const at::Tensor& position_ids);

enum class RopeDirection {
  kForward,
  kBack,  ///< by the negative angles, which undoes kForward (up to the table's attention factor)
};

/// Rotates the last R dims of x [B, S, N, H], whose pairs are neighbours (x1 cos - x2 sin, x2 cos +
/// x1 sin), in float32 or wider (DeepSeek V4). The order of the dims stays. Differentiable.
at::Tensor rotate_last_pairs(const at::Tensor& x, const RopeTable& rope,
                             const at::Tensor& position_ids,
                             RopeDirection direction = RopeDirection::kForward);

}  // namespace automodel::kernels
