#pragma once

#include <ATen/core/Tensor.h>

#include "recipes/passes/diffusion_batches.h"
#include "tensor/batch.h"

namespace automodel::recipes {

/// A batch with noise, as a model gets it, and what its loss needs besides; tensors that an
/// objective does not use are undefined.
struct NoisedBatch {
  tensor::Batch batch;  ///< labels are what positions are to say, on the positions that count
  at::Tensor weights;   ///< float32 [B], of each sequence's loss
  at::Tensor times;     ///< float32 [B], of the noise

  NoisedBatch to(at::Device device) const {
    const auto moved = [&](const at::Tensor& x) { return x.defined() ? x.to(device) : x; };
    return {batch.to(device), moved(weights), moved(times)};
  }
};

/// Float32 scalars of a batch.
struct DiffusionLoss {
  at::Tensor total;      ///< with a graph
  at::Tensor denoising;  ///< the part that upstream logs as dllm_loss; undefined: all of it
};

/// What a model learns of noised batches: one of upstream's dllm modes.
class DiffusionObjective {
 public:
  virtual ~DiffusionObjective() = default;

  /// Upstream's name of it.
  virtual const char* mode() const = 0;
  /// Adds noise to a batch of window_collater; the draws follow from the place.
  virtual NoisedBatch noised(const tensor::Batch& batch, const MicroBatchPlace& place) const = 0;
  /// Divided by `divisor`, the step's supervised tokens.
  virtual DiffusionLoss loss(const NoisedBatch& batch, double divisor) const = 0;
};

}  // namespace automodel::recipes
