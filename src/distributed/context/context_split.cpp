#include "distributed/context/context_split.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/divide.h"
#include "core/error.h"
#include "kernels/attention/visible_keys.h"

namespace automodel::distributed {

namespace {

using tensor::Batch;
using tensor::PositionRun;

at::Tensor pad(const at::Tensor& x, double fill, int64_t length) {
  if (x.size(1) == length) return x;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[1] = length - x.size(1);
  return at::cat({x, at::full(sizes, fill, x.options())}, 1);
}

at::Tensor take(const at::Tensor& x, const std::vector<PositionRun>& runs) {
  std::vector<at::Tensor> parts;
  for (const PositionRun& run : runs) parts.push_back(x.narrow(1, run.first, run.count));
  return parts.size() == 1 ? parts[0].contiguous() : at::cat(parts, 1);
}

/// Document ids of a padded batch; the padding belongs to the last document.
at::Tensor pad_documents(const at::Tensor& ids, int64_t length) {
  const int64_t missing = length - ids.size(1);
  if (missing == 0) return ids;
  return at::cat({ids, ids.narrow(1, ids.size(1) - 1, 1).expand({ids.size(0), missing})}, 1);
}

/// The padding mask of a padded batch; undefined when nothing is padding.
at::Tensor padding_of(const Batch& batch, int64_t length) {
  if (batch.padding_mask.defined()) return pad(batch.padding_mask, 1, length);
  if (length == batch.sequence_length()) return {};
  return pad(at::zeros_like(batch.input_ids, at::kBool), 1, length);
}

}  // namespace

int64_t sequence_divisor(const SequenceShare& share) {
  return share.layout == SequenceLayout::kHeadTail ? 2 * share.size : share.size;
}

int64_t padded_length(int64_t length, const SequenceShare& share) {
  return share.size == 1 ? length : round_up(length, sequence_divisor(share));
}

std::vector<PositionRun> local_runs(int64_t length, const SequenceShare& share) {
  const int64_t divisor = sequence_divisor(share);
  const bool is_head_tail = share.layout == SequenceLayout::kHeadTail;
  if (length % divisor != 0) {
    throw UserError(cat("padded_seq_len must be divisible by ", is_head_tail ? "2 * " : "",
                        "cp_size, got padded_seq_len=", length, " cp_size=", share.size));
  }
  const int64_t chunk = length / divisor;
  if (!is_head_tail) return {{share.rank * chunk, chunk}};
  return {{share.rank * chunk, chunk}, {(divisor - 1 - share.rank) * chunk, chunk}};
}

at::Tensor split_tokens(const at::Tensor& x, double fill, const SequenceShare& share) {
  if (share.size == 1) return x;
  const int64_t length = padded_length(x.size(1), share);
  return take(pad(x, fill, length), local_runs(length, share));
}

at::Tensor join_tokens(const at::Tensor& shares, SequenceLayout layout) {
  const auto size = static_cast<int>(shares.size(0));
  const int64_t length = size * shares.size(2);
  std::vector<int64_t> sizes = shares.sizes().vec();
  sizes.erase(sizes.begin());
  sizes[1] = length;
  at::Tensor whole = at::empty(sizes, shares.options());
  for (int rank = 0; rank < size; ++rank) {
    int64_t begin = 0;
    for (const PositionRun& run : local_runs(length, {rank, size, layout})) {
      whole.narrow(1, run.first, run.count)
          .copy_(shares.select(0, rank).narrow(1, begin, run.count));
      begin += run.count;
    }
  }
  return whole;
}

Batch split_batch(const Batch& batch, int64_t ignore_index, const SequenceShare& share) {
  const int64_t length = padded_length(batch.sequence_length(), share);
  const std::vector<PositionRun> runs = local_runs(length, share);
  const auto fill = static_cast<double>(ignore_index);
  Batch out;
  out.input_ids = take(pad(batch.input_ids, 0, length), runs);
  if (batch.labels.defined()) out.labels = take(pad(batch.labels, fill, length), runs);
  at::Tensor positions = batch.position_ids;
  if (!positions.defined()) {
    positions = at::arange(batch.sequence_length(), batch.input_ids.options()).unsqueeze(0);
  }
  positions = positions.expand({batch.num_sequences(), batch.sequence_length()});
  out.position_ids = take(pad(positions, 0, length), runs);
  const at::Tensor padding = padding_of(batch, length);
  const at::Tensor documents =
      batch.document_ids.defined() ? pad_documents(batch.document_ids, length) : at::Tensor();
  const auto visible = kernels::visible_keys(padding, documents);
  if (!visible) {
    throw InputError(
        "context parallelism needs every document of a sequence in one run, with padding at its "
        "ends only");
  }
  if (padding.defined()) out.padding_mask = take(padding, runs);
  if (documents.defined()) out.document_ids = take(documents, runs);
  if (visible->defined()) out.visible_keys = take(*visible, runs);
  out.part = tensor::SequencePart{batch.sequence_length(), batch.needed_positions(), runs};
  return out;
}

}  // namespace automodel::distributed
