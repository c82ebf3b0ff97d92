#pragma once

#include <memory>

#include "kernels/attention/attention.h"

namespace automodel::nn {

/// The seam between an attention layer's projections and the attention itself. The local core calls
/// kernels::causal_attention; context parallelism installs ring attention, for which the result
/// includes the log-sum-exp.
class AttentionCore {
 public:
  virtual ~AttentionCore() = default;

  /// q [B, S, N, H]; k, v [B, S, K, H] of this rank's tokens. Differentiable.
  virtual kernels::AttentionResult attend(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v,
                                          const kernels::AttentionOptions& options) = 0;
};

/// Attention over this rank's tokens only.
std::shared_ptr<AttentionCore> make_local_attention_core();

}  // namespace automodel::nn
