#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

struct ExpectedEmbeddingOptions {
  double softcap = 0;  ///< logits become cap * tanh(logits / cap); 0: off
  double scale = 1.0;  ///< of the result
};

/// What the head expects to be embedded: softmax(logits) @ weight * scale, where the logits are
/// hidden @ weight^T, chunk by chunk, so that they never exist whole, in either direction. hidden
/// [T, D], weight [V, D], one dtype. Returns [T, D]. The softmax is a constant: differentiable in
/// weight as the table that is averaged, not through the logits.
at::Tensor expected_embedding(const at::Tensor& hidden, const at::Tensor& weight,
                              const ExpectedEmbeddingOptions& options);

}  // namespace automodel::kernels
