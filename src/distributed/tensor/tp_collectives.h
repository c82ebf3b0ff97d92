#pragma once

#include <ATen/core/Tensor.h>

#include "comm/process_group.h"

namespace automodel::distributed {

/// Collectives of a tensor-parallel group as autograd sees them. T ranks; tensors are [B, S, D] or
/// anything with a last dim of features. In a sequence split over the group, rank r holds the r-th
/// of T equal runs of positions; when S is not divisible the last run ends with zeros.

/// A gradient at a collective's output: a summand on each rank, or the same on all of them.
enum class OutputGradient { kSummand, kWhole };

/// A tensor that ranks compute with in parts: x itself, whose gradient is the sum of the parts'.
at::Tensor enter_parts(const at::Tensor& x, const comm::ProcessGroup& group);

/// The sum of the ranks' summands.
at::Tensor sum_parts(const at::Tensor& x, const comm::ProcessGroup& group);

/// All ranks' features one behind another: [..., D / T] to [..., D]. The output's gradient is
/// whole.
at::Tensor gather_features(const at::Tensor& x, const comm::ProcessGroup& group);

/// This rank's features of a whole tensor: [..., D] to [..., D / T].
at::Tensor take_features(const at::Tensor& x, const comm::ProcessGroup& group);

/// The whole sequence of `length` positions from the ranks' runs.
at::Tensor gather_sequence(const at::Tensor& x, int64_t length, const comm::ProcessGroup& group,
                           OutputGradient gradient);

/// This rank's run of the sum of the ranks' summands: [B, S, D] to [B, ceil(S / T), D].
at::Tensor sum_sequence_parts(const at::Tensor& x, const comm::ProcessGroup& group);

/// This rank's run of a sequence that every rank has.
at::Tensor take_sequence(const at::Tensor& x, const comm::ProcessGroup& group);

}  // namespace automodel::distributed
