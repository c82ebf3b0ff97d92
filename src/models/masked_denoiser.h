#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tensor/batch.h"

namespace automodel::models {

/// Consecutive positions of a batch, counted through its sequences: position s of sequence b is
/// b * S + s.
struct ScoredRun {
  int64_t first = 0;
  int64_t count = 0;
};

/// The interface of a CausalLM that can be trained to name hidden tokens.
class MaskedDenoiser {
 public:
  virtual ~MaskedDenoiser() = default;

  /// For each run the sum of its labelled positions' cross-entropies divided by `divisor`: float32
  /// [runs] with a graph. A label is what its position is to say, be it the token that is hidden
  /// there or another one.
  virtual at::Tensor losses_of_runs(const tensor::Batch& batch, const std::vector<ScoredRun>& runs,
                                    double divisor, int64_t ignore_index) = 0;
};

}  // namespace automodel::models
