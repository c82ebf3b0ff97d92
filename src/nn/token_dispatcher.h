#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::nn {

/// Tokens as an expert layer computes on them: grouped by expert.
struct DispatchedTokens {
  at::Tensor tokens;             ///< [M, D], sorted by local expert
  at::Tensor tokens_per_expert;  ///< [number of local experts] int64
};

/// The seam between a router and its experts. The local dispatcher sorts; expert parallelism sends
/// tokens to the ranks that hold their experts and back.
class TokenDispatcher {
 public:
  virtual ~TokenDispatcher() = default;

  /// x [T, D]; expert_ids [T, k] int64. Differentiable in x.
  virtual DispatchedTokens dispatch(const at::Tensor& x, const at::Tensor& expert_ids) = 0;

  /// The inverse of the last dispatch, weighted: y [M, D], weights [T, k] -> [T, D].
  virtual at::Tensor combine(const at::Tensor& y, const at::Tensor& weights) = 0;
};

}  // namespace automodel::nn
