#include "datasets/loading/collate.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/divide.h"
#include "core/error.h"

namespace automodel::datasets {

namespace {

at::Tensor empty_matrix(int64_t rows, int64_t columns, at::ScalarType dtype) {
  return at::empty({rows, columns}, at::TensorOptions().dtype(dtype));
}

/// position_ids and document_ids of packs. What is behind a pack's documents is a document of its
/// own, all of it at position 0.
void mark_documents(std::span<const Sample> samples, tensor::Batch& batch) {
  const int64_t length = batch.sequence_length();
  batch.position_ids = at::zeros_like(batch.input_ids);
  batch.document_ids = at::empty_like(batch.input_ids);
  int64_t* positions = batch.position_ids.mutable_data_ptr<int64_t>();
  int64_t* documents = batch.document_ids.mutable_data_ptr<int64_t>();
  for (const Sample& sample : samples) {
    std::vector<int64_t> lengths = sample.document_lengths;
    if (lengths.empty()) lengths = {std::ssize(sample.input_ids)};
    int64_t at = 0;
    int64_t document = 0;
    for (const int64_t count : lengths) {
      std::iota(positions + at, positions + at + count, 0);
      std::fill(documents + at, documents + at + count, document++);
      at += count;
    }
    AM_CHECK(at <= length, "documents of ", at, " tokens in a sequence of ", length);
    std::fill(documents + at, documents + length, document);
    positions += length;
    documents += length;
  }
}

/// The types of all tokens, 0 at padding; undefined where no sample has any.
at::Tensor token_types(std::span<const Sample> samples, int64_t length) {
  const auto has_some = [](const Sample& sample) { return !sample.token_types.empty(); };
  if (!std::ranges::any_of(samples, has_some)) return {};
  at::Tensor all = empty_matrix(std::ssize(samples), length, at::kLong);
  int64_t* types = all.mutable_data_ptr<int64_t>();
  for (const Sample& sample : samples) {
    int64_t* end = std::ranges::copy(sample.token_types, types).out;
    std::fill(end, types + length, 0);
    types += length;
  }
  return all;
}

int64_t padded_length(int64_t longest, const CollaterConfig& config) {
  return round_up(longest, config.pad_seq_len_divisible.value_or(1));
}

/// source_ids and source_padding; undefined where samples have no source.
void add_sources(std::span<const Sample> samples, const CollaterConfig& config,
                 tensor::Batch& batch) {
  int64_t longest = 0;
  for (const Sample& sample : samples) {
    longest = std::max(longest, std::ssize(sample.source_ids));
    AM_CHECK(sample.source_ids.empty() == samples.front().source_ids.empty());
  }
  if (longest == 0) return;
  const int64_t length = padded_length(longest, config);
  batch.source_ids = empty_matrix(std::ssize(samples), length, at::kLong);
  at::Tensor padding = empty_matrix(std::ssize(samples), length, at::kBool);
  int64_t* ids = batch.source_ids.mutable_data_ptr<int64_t>();
  bool* is_padding = padding.mutable_data_ptr<bool>();
  bool has_padding = false;
  for (const Sample& sample : samples) {
    const int64_t count = std::ssize(sample.source_ids);
    std::fill(std::ranges::copy(sample.source_ids, ids).out, ids + length, sample.pad_id);
    std::fill(is_padding, is_padding + count, false);
    std::fill(is_padding + count, is_padding + length, true);
    has_padding = has_padding || count < length;
    ids += length;
    is_padding += length;
  }
  if (has_padding) batch.source_padding = padding;
}

}  // namespace

tensor::Batch default_collater(std::span<const Sample> samples, const CollaterConfig& config) {
  AM_CHECK(!samples.empty(), "a batch without samples");
  const auto num_samples = static_cast<int64_t>(samples.size());
  int64_t length = 0;
  bool has_padding = false;
  for (const Sample& sample : samples) {
    AM_CHECK(sample.labels.size() == sample.input_ids.size(), "row ", sample.row, " has ",
             sample.labels.size(), " labels for ", sample.input_ids.size(), " tokens");
    length = std::max(length, static_cast<int64_t>(sample.input_ids.size()));
  }
  length = padded_length(length, config);

  tensor::Batch batch;
  batch.input_ids = empty_matrix(num_samples, length, at::kLong);
  batch.labels = empty_matrix(num_samples, length, at::kLong);
  at::Tensor padding_mask = empty_matrix(num_samples, length, at::kBool);
  int64_t* ids = batch.input_ids.mutable_data_ptr<int64_t>();
  int64_t* labels = batch.labels.mutable_data_ptr<int64_t>();
  bool* mask = padding_mask.mutable_data_ptr<bool>();
  for (const Sample& sample : samples) {
    int64_t* id = std::copy(sample.input_ids.begin(), sample.input_ids.end(), ids);
    std::fill(id, ids + length, samples.front().pad_id);
    int64_t* label = std::copy(sample.labels.begin(), sample.labels.end(), labels);
    std::fill(label, labels + length, kIgnoreIndex);
    std::fill(mask, mask + sample.num_attended, false);
    std::fill(mask + sample.num_attended, mask + length, true);
    has_padding = has_padding || sample.num_attended < length;
    ids += length;
    labels += length;
    mask += length;
  }
  if (has_padding) batch.padding_mask = padding_mask;
  const bool has_documents = std::any_of(samples.begin(), samples.end(), [](const Sample& sample) {
    return !sample.document_lengths.empty();
  });
  if (has_documents) mark_documents(samples, batch);
  batch.token_types = token_types(samples, length);
  add_sources(samples, config, batch);
  return batch;
}

tensor::Batch stack_collater(std::span<const Sample> samples) {
  AM_CHECK(!samples.empty(), "a batch without samples");
  for (const Sample& sample : samples) {
    if (sample.source_ids.size() != samples.front().source_ids.size()) {
      throw InputError(cat("default_collate stacks samples of equal length only: row ",
                           samples.front().row, " has a source of ",
                           samples.front().source_ids.size(), " tokens, row ", sample.row, " of ",
                           sample.source_ids.size(), "; default_collater pads them"));
    }
    if (sample.input_ids.size() != samples.front().input_ids.size()) {
      throw InputError(cat("default_collate stacks samples of equal length only: row ",
                           samples.front().row, " has ", samples.front().input_ids.size(),
                           " tokens, row ", sample.row, " has ", sample.input_ids.size(),
                           "; default_collater pads them"));
    }
  }
  tensor::Batch batch = default_collater(samples);
  batch.padding_mask = at::Tensor();
  return batch;
}

}  // namespace automodel::datasets
