#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

struct ExpectedEmbeddingOptions {
  double softcap = 0;  ///< logits become cap * tanh(logits / cap); 0: off
  double scale = 1.0;  ///< of the result
};

/// The embedding that the head expects: softmax(logits) @ weight * scale with logits hidden @
/// weight^T, computed chunk by chunk in forward and backward, so that the logits never exist whole.
/// hidden [T, D], weight [V, D], one dtype. Returns [T, D]. The softmax counts as constant:
/// differentiable in weight as the averaged table, not through the logits.
at::Tensor expected_embedding(const at::Tensor& hidden, const at::Tensor& weight,
                              const ExpectedEmbeddingOptions& options);

}  // namespace automodel::kernels
