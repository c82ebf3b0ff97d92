#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace automodel::nn {

/// What a dispatcher remembers from dispatch to combine.
class DispatchPlan {
 public:
  virtual ~DispatchPlan() = default;
};

/// Tokens as a rank's experts compute on them.
struct DispatchedTokens {
  at::Tensor tokens;      ///< [M, D]
  at::Tensor expert_ids;  ///< [M, j] int64: index among this rank's experts; -1: none of them
  at::Tensor weights;     ///< [M, j]
  std::shared_ptr<const DispatchPlan> plan;
};

/// The seam between a router and its experts. The local dispatcher hands tokens on as they are;
/// expert parallelism sends them to the ranks that hold their experts, and the results back.
class TokenDispatcher {
 public:
  virtual ~TokenDispatcher() = default;

  /// x [T, D]; expert_ids [T, k] int64 among all experts, -1 for none; weights [T, k].
  /// Differentiable in x and weights.
  virtual DispatchedTokens dispatch(const at::Tensor& x, const at::Tensor& expert_ids,
                                    const at::Tensor& weights) = 0;

  /// y [M, D], the weighted sums of this rank's experts for `dispatched.tokens`, to [T, D], the
  /// sums of all ranks' experts. Differentiable.
  virtual at::Tensor combine(const at::Tensor& y, const DispatchedTokens& dispatched) = 0;
};

/// For experts that are all here.
std::shared_ptr<TokenDispatcher> make_local_token_dispatcher();

/// A layer of experts that can be split over ranks; what expert parallelism looks for in a module
/// tree. Its parameters have the experts as their first dim.
class SplitsExperts {
 public:
  virtual ~SplitsExperts() = default;

  /// Experts of the whole layer, also when split.
  virtual int64_t num_experts() const = 0;
  /// Whoever makes the parameters smaller says how tokens come to the experts that stay.
  virtual void set_token_dispatcher(std::shared_ptr<TokenDispatcher> dispatcher) = 0;
};

}  // namespace automodel::nn
