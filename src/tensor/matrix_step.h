#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "tensor/shard_spec.h"

namespace automodel::tensor {

/// A change of matrices of which ranks hold parts. Parts are numbered as their segments were given
/// to the MatrixStepper; no function may call another rank.
struct MatrixStep {
  /// Writes what is to be changed of a part, read row by row, to `out` (float32 [numel]).
  std::function<void(size_t part, at::Tensor out)> read;
  /// The changed matrix [rows, columns] of a whole one, both float32.
  std::function<at::Tensor(const at::Tensor& whole)> compute;
  /// Takes the changed numbers of a part (float32 [numel]).
  std::function<void(size_t part, const at::Tensor& changed)> write;
};

/// Runs a step. All ranks that hold parts of the same matrices call it together.
using MatrixStepper = std::function<void(const MatrixStep& step)>;

/// Makes the stepper of a rank's parts of matrices; collective as the stepper is.
using MatrixStepperMaker = std::function<MatrixStepper(const std::vector<FlatSegment>& parts)>;

}  // namespace automodel::tensor
