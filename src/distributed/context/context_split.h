#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tensor/batch.h"

namespace automodel::distributed {

/// Which tokens of a sequence a context-parallel rank holds.
enum class SequenceLayout {
  kHeadTail,   ///< of 2 cp equal chunks the r-th and the r-th from the end: causal work is even
  kContiguous  ///< the r-th of cp equal runs
};

/// A rank's share of every sequence.
struct SequenceShare {
  int rank = 0;
  int size = 1;
  SequenceLayout layout = SequenceLayout::kHeadTail;
};

/// What sequences' lengths must be divisible by: 2 cp, or cp.
int64_t sequence_divisor(const SequenceShare& share);

/// The smallest such length of at least `length` tokens.
int64_t padded_length(int64_t length, const SequenceShare& share);

/// The share's positions, in the order in which its tokens lie. Throws UserError when the length is
/// not divisible: "padded_seq_len must be divisible by 2 * cp_size, got padded_seq_len=6
/// cp_size=2".
std::vector<tensor::PositionRun> local_runs(int64_t length, const SequenceShare& share);

/// The share of x [B, S, ...], whose sequences are padded with `fill` to a divisible length.
at::Tensor split_tokens(const at::Tensor& x, double fill, const SequenceShare& share);

/// The inverse: all ranks' shares [cp, B, s, ...], by rank, as [B, cp s, ...].
at::Tensor join_tokens(const at::Tensor& shares, SequenceLayout layout);

/// A rank's share of every field of a batch. Position ids are those of the whole; padding gets
/// labels `ignore_index`, padding mask true, and otherwise 0. The batch's labels are shifted
/// already, so the split parts no token from its label. Throws InputError for documents that begin
/// again and for padding inside a document.
tensor::Batch split_batch(const tensor::Batch& batch, int64_t ignore_index,
                          const SequenceShare& share);

}  // namespace automodel::distributed
