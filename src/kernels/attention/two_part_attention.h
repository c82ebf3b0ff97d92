#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

/// Keys and values of a run of tokens, and the ones that each query sees.
struct AttentionPart {
  at::Tensor k;             ///< [B, T, K, H]
  at::Tensor v;             ///< [B, T, K, V]
  at::Tensor visible_keys;  ///< [B, Q, 2] int64: the first key that a query sees and the one behind
                            ///< the last; equal: none
  at::Tensor chosen_keys = {};  ///< int32 [B, Q, C], key_choice.h: the only ones of the run that a
                                ///< query sees; or undefined: all. Not fused
};

struct TwoPartOptions {
  double scale = 1;
  at::Tensor sinks = {};  ///< [N], float32 or q's dtype: a score beside the keys' whose value is
                          ///< zero (GPT-OSS); differentiable; or undefined
};

/// Attention of q [B, Q, N, H] over the keys of both parts, by one softmax; a block of text that is
/// being denoised attends so to the text before it and to itself, and a token of DeepSeek V4 to
/// those in its window and to compressed ones before. Returns [B, Q, N, V] in q's dtype; queries
/// that see nothing get zeros. Differentiable in q and in both parts' k and v. A part may have no
/// keys.
at::Tensor two_part_attention(const at::Tensor& q, const AttentionPart& first,
                              const AttentionPart& second, const TwoPartOptions& options);

/// two_part_attention() by ATen's operations and autograd.
at::Tensor two_part_attention_reference(const at::Tensor& q, const AttentionPart& first,
                                        const AttentionPart& second, const TwoPartOptions& options);

}  // namespace automodel::kernels
