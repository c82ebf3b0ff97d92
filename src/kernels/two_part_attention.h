#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

/// Keys and values of a run of tokens, and the ones that each query sees.
struct AttentionPart {
  at::Tensor k;             ///< [B, T, K, H]
  at::Tensor v;             ///< [B, T, K, V]
  at::Tensor visible_keys;  ///< [B, Q, 2] int64: the first key that a query sees and the one behind
                            ///< the last; equal: none
};

/// Attention of q [B, Q, N, H] over the keys of both parts, by one softmax; a block of text that is
/// being denoised attends so to the text before it and to itself. Returns [B, Q, N, V] in q's
/// dtype; queries that see nothing get zeros. Differentiable in q and in both parts' k and v.
at::Tensor two_part_attention(const at::Tensor& q, const AttentionPart& first,
                              const AttentionPart& second, double scale);

/// two_part_attention() by ATen's operations and autograd.
at::Tensor two_part_attention_reference(const at::Tensor& q, const AttentionPart& first,
                                        const AttentionPart& second, double scale);

}  // namespace automodel::kernels
