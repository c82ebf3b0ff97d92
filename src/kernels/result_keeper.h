#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace automodel::kernels {

/// Results whose memory may be worth less than computing them twice.
enum class ResultKind {
  kAttention,     ///< {out, lse} of causal_attention's fused path
  kMatrixProduct  ///< {product} of linear
};

/// Sees the costly results of a forward pass and may hand them back when the pass is repeated.
class ResultKeeper {
 public:
  virtual ~ResultKeeper() = default;

  /// Asked before each result is computed, in the order of the calls: the result of the first pass,
  /// or nullopt to compute it.
  virtual std::optional<std::vector<at::Tensor>> take(ResultKind kind) = 0;
  /// Told each result that was computed, in the order of the calls.
  virtual void computed(ResultKind kind, const std::vector<at::Tensor>& results) = 0;
};

/// While it lives, kernels that this thread calls consult `keeper`; scopes nest. A result that was
/// taken gets the same autograd node as one that was computed.
///
/// The keeper is a thread-local pointer and not a parameter: between whoever recomputes a block and
/// the kernels lie the layers of every model, which know nothing of either.
class ResultKeeperScope final {
 public:
  explicit ResultKeeperScope(ResultKeeper& keeper);
  ~ResultKeeperScope();
  ResultKeeperScope(const ResultKeeperScope&) = delete;
  ResultKeeperScope& operator=(const ResultKeeperScope&) = delete;

 private:
  ResultKeeper* outer_;
};

/// For kernels: what the innermost keeper of this thread says; nullopt and nothing without one.
std::optional<std::vector<at::Tensor>> take_result(ResultKind kind);
void offer_result(ResultKind kind, const std::vector<at::Tensor>& results);

}  // namespace automodel::kernels
