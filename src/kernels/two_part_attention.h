#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

/// Keys and values of a run of tokens, and which of them each query sees.
struct AttentionPart {
  at::Tensor k;             ///< [B, T, K, H]
  at::Tensor v;             ///< [B, T, K, V]
  at::Tensor visible_keys;  ///< [B, Q, 2] int64: the first key that a query sees and the one behind
                            ///< the last; equal: none
};

/// Attention of q [B, Q, N, H] over the keys of both parts together, by one softmax: what a block
/// of text being denoised sees of the text before it and of itself. Returns [B, Q, N, V], dtype of
/// q; queries that see nothing have zeros. Differentiable in q and in both parts' k and v.
at::Tensor two_part_attention(const at::Tensor& q, const AttentionPart& first,
                              const AttentionPart& second, double scale);

/// two_part_attention() by ATen's operations and autograd.
at::Tensor two_part_attention_reference(const at::Tensor& q, const AttentionPart& first,
                                        const AttentionPart& second, double scale);

}  // namespace automodel::kernels
