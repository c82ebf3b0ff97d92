#pragma once

#include <ATen/core/Tensor.h>

#include "comm/groups/process_group.h"

namespace automodel::distributed {

/// Differentiable collectives of a tensor-parallel group of T ranks. Tensors are [B, S, D] or have
/// features in their last dim. Of a sequence split over the group, rank r holds the r-th of T equal
/// runs of positions; if S is not divisible, the last run ends with zeros.

/// What a rank holds of the gradient of a collective's output: a summand, or all of it.
enum class OutputGradient { kSummand, kWhole };

/// Returns x, which ranks then use for parts of a computation; its gradient is the sum of the
/// ranks' gradients.
at::Tensor enter_parts(const at::Tensor& x, const comm::ProcessGroup& group);

/// The sum of all ranks' x.
at::Tensor sum_parts(const at::Tensor& x, const comm::ProcessGroup& group);

/// Concatenates all ranks' features: [..., D / T] to [..., D]. Expects the whole gradient of the
/// output on each rank.
at::Tensor gather_features(const at::Tensor& x, const comm::ProcessGroup& group);

/// This rank's features of a whole tensor: [..., D] to [..., D / T].
at::Tensor take_features(const at::Tensor& x, const comm::ProcessGroup& group);

/// Concatenates the ranks' runs to the whole sequence of `length` positions.
at::Tensor gather_sequence(const at::Tensor& x, int64_t length, const comm::ProcessGroup& group,
                           OutputGradient gradient);

/// This rank's run of the sum of all ranks' x: [B, S, D] to [B, ceil(S / T), D].
at::Tensor sum_sequence_parts(const at::Tensor& x, const comm::ProcessGroup& group);

/// This rank's run of a sequence that every rank holds whole.
at::Tensor take_sequence(const at::Tensor& x, const comm::ProcessGroup& group);

}  // namespace automodel::distributed
