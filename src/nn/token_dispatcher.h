#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace automodel::nn {

/// State that a dispatcher keeps from dispatch to combine.
class DispatchState {
 public:
  virtual ~DispatchState() = default;
};

/// The tokens on which a rank's experts compute.
struct DispatchedTokens {
  at::Tensor tokens;      ///< [M, D]
  at::Tensor expert_ids;  ///< [M, j] int64: index among this rank's experts; -1: not one of them
  at::Tensor weights;     ///< [M, j]
  std::shared_ptr<const DispatchState> state;
};

/// The seam between a router and its experts. The local dispatcher passes tokens unchanged; expert
/// parallelism sends them to the ranks of their experts, and the results back.
class TokenDispatcher {
 public:
  virtual ~TokenDispatcher() = default;

  /// x [T, D]; expert_ids [T, k] int64 among all experts, -1 for none; weights [T, k].
  /// Differentiable in x and weights.
  virtual DispatchedTokens dispatch(const at::Tensor& x, const at::Tensor& expert_ids,
                                    const at::Tensor& weights) = 0;

  /// y [M, D]: the weighted sums over this rank's experts for `dispatched.tokens`. Returns [T, D]:
  /// the sums over all ranks' experts. Differentiable.
  virtual at::Tensor combine(const at::Tensor& y, const DispatchedTokens& dispatched) = 0;
};

/// The dispatcher for experts that are all on this rank.
std::shared_ptr<TokenDispatcher> make_local_token_dispatcher();

/// A layer of experts that can be split over ranks; expert parallelism looks for this interface.
/// The first dim of its parameters is the experts.
class SplitsExperts {
 public:
  virtual ~SplitsExperts() = default;

  /// Number of experts of the whole layer, even when split.
  virtual int64_t num_experts() const = 0;
  /// Sets how tokens reach the remaining experts; called by whoever makes the parameters smaller.
  virtual void set_token_dispatcher(std::shared_ptr<TokenDispatcher> dispatcher) = 0;
};

}  // namespace automodel::nn
