#include "datasets/loading/window_collate.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <numeric>

#include "core/divide.h"
#include "core/error.h"
#include "datasets/samples/most_tokens.h"

namespace automodel::datasets {

namespace {

bool is_label(int64_t label) {
  return label != kIgnoreIndex;
}

/// The response's first token; the sample's length when it has none.
int64_t response_begin(const Sample& sample) {
  const auto first = std::find_if(sample.labels.begin(), sample.labels.end(), is_label);
  return first - sample.labels.begin();
}

void check_one_run(const Sample& sample) {
  int64_t runs = 0;
  for (size_t i = 0; i < sample.labels.size(); ++i) {
    runs += is_label(sample.labels[i]) && (i == 0 || !is_label(sample.labels[i - 1])) ? 1 : 0;
  }
  if (runs <= 1) return;
  throw InputError(cat("row ", sample.row, ", counted from 0, has ", runs,
                       " runs of tokens that count in the loss; block diffusion denoises one "
                       "response behind one prompt: mask_history: true of a ChatDataset keeps the "
                       "last one"));
}

/// One past the tokens that fill a sample's last block.
int64_t fill_end(const Sample& sample, const WindowCollaterConfig& config) {
  auto length = static_cast<int64_t>(sample.input_ids.size());
  if (config.max_length) length = std::min(length, *config.max_length);
  const int64_t block = config.block_size.value_or(1);
  const int64_t begin = config.has_responses ? std::min(response_begin(sample), length) : 0;
  return begin + round_up(length - begin, block);
}

}  // namespace

tensor::Batch window_collater(std::span<const Sample> samples, const WindowCollaterConfig& config) {
  AM_CHECK(!samples.empty(), "a batch without samples");
  int64_t length = 1;
  for (const Sample& sample : samples) {
    if (config.has_responses) check_one_run(sample);
    length = std::max(length, fill_end(sample, config));
  }
  if (const int64_t divisor = config.pad_seq_len_divisible.value_or(1); divisor > 1) {
    length = round_up(length, std::lcm(config.block_size.value_or(1), divisor));
  }
  if (config.max_length) length = std::min(length, *config.max_length);
  check_length(length);

  const auto num_samples = static_cast<int64_t>(samples.size());
  const auto matrix = [&](int64_t value, at::ScalarType dtype) {
    return at::full({num_samples, length}, value, at::TensorOptions().dtype(dtype));
  };
  tensor::Batch batch;
  batch.input_ids = matrix(config.pad_id, at::kLong);
  batch.labels = matrix(config.supervises_padding ? config.pad_id : kIgnoreIndex, at::kLong);
  batch.padding_mask = matrix(1, at::kBool);
  int64_t* ids = batch.input_ids.mutable_data_ptr<int64_t>();
  int64_t* labels = batch.labels.mutable_data_ptr<int64_t>();
  bool* mask = batch.padding_mask.mutable_data_ptr<bool>();
  for (const Sample& sample : samples) {
    const auto own = static_cast<int64_t>(sample.input_ids.size());
    const int64_t copied = std::min(own, length);
    std::copy_n(sample.input_ids.begin(), copied, ids);
    std::copy_n(sample.labels.begin(), copied, labels);
    std::fill_n(mask, std::min(sample.num_attended, copied), false);
    const int64_t end = std::min(fill_end(sample, config), length);
    if (end > own) {
      std::fill(ids + own, ids + end, config.eos_id);
      std::fill(labels + own, labels + end, config.eos_id);
      if (config.has_responses) std::fill(mask + own, mask + end, false);
    }
    ids += length;
    labels += length;
    mask += length;
  }
  return batch;
}

}  // namespace automodel::datasets
