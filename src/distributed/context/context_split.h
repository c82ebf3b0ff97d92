#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tensor/batch.h"

namespace automodel::distributed {

/// Which tokens of a sequence a context-parallel rank holds.
enum class SequenceLayout {
  kHeadTail,   ///< chunks r and 2 cp - 1 - r of 2 cp equal ones: causal work is even
  kContiguous  ///< run r of cp equal runs
};

/// A rank's share of every sequence.
struct SequenceShare {
  int rank = 0;
  int size = 1;
  SequenceLayout layout = SequenceLayout::kHeadTail;
};

/// The number that divides a sequence's length: 2 cp for kHeadTail, cp for kContiguous.
int64_t sequence_divisor(const SequenceShare& share);

/// The smallest length of at least `length` tokens that is divisible by it; `length` where one rank
/// has all of them.
int64_t padded_length(int64_t length, const SequenceShare& share);

/// The positions of the share, in the order of its tokens. Throws UserError when the length is not
/// divisible: "padded_seq_len must be divisible by 2 * cp_size, got padded_seq_len=6 cp_size=2".
std::vector<tensor::PositionRun> local_runs(int64_t length, const SequenceShare& share);

/// The share of x [B, S, ...], after padding sequences with `fill` to padded_length().
at::Tensor split_tokens(const at::Tensor& x, double fill, const SequenceShare& share);

/// The inverse of split_tokens: joins all ranks' shares [cp, B, s, ...] to [B, cp s, ...].
at::Tensor join_tokens(const at::Tensor& shares, SequenceLayout layout);

/// A rank's share of every field of a batch. Position ids are those of the whole sequence; padding
/// gets labels `ignore_index`, padding mask true, and 0 elsewhere. The batch's labels are already
/// shifted, so splitting never separates a token from its label. Throws InputError for a document
/// whose id occurs again later, and for padding inside a document.
tensor::Batch split_batch(const tensor::Batch& batch, int64_t ignore_index,
                          const SequenceShare& share);

}  // namespace automodel::distributed
