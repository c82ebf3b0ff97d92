#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace automodel::kernels {

/// Results that may be kept rather than computed twice.
enum class ResultKind {
  kAttention,     ///< {out, lse} of causal_attention's fused path
  kMatrixProduct  ///< {product} of linear and lora_linear
};

/// Receives the costly results of a forward pass and may return them when the pass is repeated.
class ResultKeeper {
 public:
  virtual ~ResultKeeper() = default;

  /// Called before each result is computed, in order: returns the first pass's result, or nullopt
  /// to compute it.
  virtual std::optional<std::vector<at::Tensor>> take(ResultKind kind) = 0;
  /// Called with each computed result, in order.
  virtual void computed(ResultKind kind, const std::vector<at::Tensor>& results) = 0;
};

/// During its lifetime, kernels called by this thread use `keeper`; scopes nest. A result that is
/// taken gets the same autograd node as a computed one.
///
/// The keeper is a thread-local pointer rather than a parameter: the layers of every model, which
/// know nothing of it, are between the caller and the kernels.
class ResultKeeperScope final {
 public:
  explicit ResultKeeperScope(ResultKeeper& keeper);
  ~ResultKeeperScope();
  ResultKeeperScope(const ResultKeeperScope&) = delete;
  ResultKeeperScope& operator=(const ResultKeeperScope&) = delete;

 private:
  ResultKeeper* outer_;
};

/// For kernels: the answer of this thread's innermost keeper; without one nullopt, and no effect.
std::optional<std::vector<at::Tensor>> take_result(ResultKind kind);
void offer_result(ResultKind kind, const std::vector<at::Tensor>& results);

}  // namespace automodel::kernels
