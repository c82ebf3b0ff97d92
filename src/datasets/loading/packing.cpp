#include "datasets/loading/packing.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <queue>
#include <utility>

#include "core/divide.h"
#include "core/error.h"
#include "core/long_work.h"
#include "core/parallel.h"
#include "datasets/rows/order_checksum.h"

namespace automodel::datasets {

namespace {

using Packs = std::vector<std::vector<int64_t>>;

Packs next_fit(std::span<const int64_t> lengths, int64_t pack_size) {
  Packs packs;
  int64_t used = pack_size;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (used + lengths[i] > pack_size) {
      packs.emplace_back();
      used = 0;
    }
    packs.back().push_back(static_cast<int64_t>(i));
    used += lengths[i];
  }
  return packs;
}

Packs emptiest_fit(std::span<const int64_t> lengths, int64_t pack_size) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  Packs packs;
  using Fill = std::pair<int64_t, int64_t>;  // tokens, then the pack's number
  std::priority_queue<Fill, std::vector<Fill>, std::greater<>> fills;
  for (const int64_t index : order) {
    const int64_t length = lengths[static_cast<size_t>(index)];
    if (fills.empty() || fills.top().first + length > pack_size) {
      fills.emplace(length, static_cast<int64_t>(packs.size()));
      packs.push_back({index});
      continue;
    }
    const auto [tokens, pack] = fills.top();
    fills.pop();
    fills.emplace(tokens + length, pack);
    packs[static_cast<size_t>(pack)].push_back(index);
  }
  return packs;
}

}  // namespace

std::vector<std::vector<int64_t>> pack_lengths(std::span<const int64_t> lengths,
                                               const PackingConfig& config) {
  for (const int64_t length : lengths) {
    AM_CHECK(length > 0 && length <= config.pack_size, "a sample of ", length, " tokens");
  }
  Packs packs = config.strategy == PackingStrategy::kThd ? next_fit(lengths, config.pack_size)
                                                         : emptiest_fit(lengths, config.pack_size);
  const auto most = static_cast<size_t>(config.max_packs.value_or(std::ssize(packs)));
  if (packs.size() > most) packs.resize(most);
  return packs;
}

PackedDataset::PackedDataset(std::unique_ptr<const Dataset> samples, const PackingConfig& config,
                             Reporter* reporter)
    : samples_(std::move(samples)), config_(config) {
  AM_CHECK(samples_ != nullptr && config_.pack_size > 0, "nothing to pack");
  AM_CHECK(config_.pack_size % config_.pad_to_multiple_of == 0, config_.pad_to_multiple_of);
  const Measured measured = measure(reporter);
  packs_ = pack_lengths(measured.lengths, config_);
  for (std::vector<int64_t>& pack : packs_) {
    for (int64_t& index : pack) {
      const auto place = static_cast<size_t>(index);
      counts_.num_tokens += measured.lengths[place];
      counts_.num_packed += 1;
      counts_.num_cut += measured.are_cut[place];
      index = measured.samples[place];
    }
  }
  counts_.num_packs = size();
  counts_.num_left_over = std::ssize(measured.samples) - counts_.num_packed;
  if (reporter != nullptr) describe(*reporter);
  OrderChecksum order;
  order.add(static_cast<int64_t>(samples_->order_checksum()));
  for (const std::vector<int64_t>& pack : packs_) order.add(pack);
  order_checksum_ = order.value();
  if (packs_.empty()) {
    throw InputError(cat("packing leaves nothing to train on: of ", counts_.num_samples,
                         " samples ", counts_.num_too_long, " are longer than a pack of ",
                         config_.pack_size, " tokens (packed_sequence.packed_sequence_size), ",
                         counts_.num_unlabelled, " have no token that counts in the loss"));
  }
}

int64_t PackedDataset::padded(int64_t length) const {
  return round_up(length, config_.pad_to_multiple_of);
}

PackedDataset::Measured PackedDataset::measure(Reporter* reporter) {
  const int64_t count = samples_->size();
  std::vector<int64_t> lengths(static_cast<size_t>(count), 0);  // 0: no label
  std::vector<char> are_cut(lengths.size(), 0);
  const auto measure_one = [&](int64_t index) {
    const Sample sample = samples_->at(index);
    if (sample.row == index && sample.has_label()) {
      lengths[static_cast<size_t>(index)] = padded(sample.num_attended);
      are_cut[static_cast<size_t>(index)] = sample.num_cut > 0 ? 1 : 0;
    }
  };
  constexpr int64_t kChunk = 64;
  std::atomic<int64_t> num_done = 0;
  const LongWork told(reporter, "packing", [&] {
    return cat(std::min(num_done.load(), count), " of ", count, " samples");
  });
  const auto measure_chunk = [&](size_t chunk) {
    const int64_t begin = static_cast<int64_t>(chunk) * kChunk;
    for (int64_t i = begin; i < std::min(begin + kChunk, count); ++i) measure_one(i);
    num_done += kChunk;
  };
  const int num_threads =
      config_.num_threads > 0 ? static_cast<int>(config_.num_threads) : at::get_num_threads();
  run_tasks(static_cast<size_t>(ceil_div(count, kChunk)), num_threads, measure_chunk);
  Measured measured;
  counts_.num_samples = count;
  for (int64_t index = 0; index < count; ++index) {
    const int64_t length = lengths[static_cast<size_t>(index)];
    if (length == 0) {
      counts_.num_unlabelled += 1;
    } else if (length > config_.pack_size) {
      if (!config_.drops_long_samples) {
        throw InputError(cat(samples_->origin(index), ": ", length, " tokens do not fit a pack of ",
                             config_.pack_size,
                             " (packed_sequence.packed_sequence_size); drop_long_samples: true "
                             "leaves such samples out"));
      }
      counts_.num_too_long += 1;
    } else {
      measured.samples.push_back(index);
      measured.lengths.push_back(length);
      measured.are_cut.push_back(are_cut[static_cast<size_t>(index)]);
    }
  }
  return measured;
}

double PackedDataset::fill() const {
  const double room = static_cast<double>(counts_.num_packs * config_.pack_size);
  return room > 0 ? static_cast<double>(counts_.num_tokens) / room : 0;
}

Json PackedDataset::facts() const {
  Json facts = Json::object();
  facts["num_samples"] = counts_.num_samples;
  facts["num_packs"] = counts_.num_packs;
  facts["pack_size"] = config_.pack_size;
  facts["fill"] = fill();
  facts["num_packed"] = counts_.num_packed;
  facts["num_dropped"] = counts_.num_samples - counts_.num_packed;
  facts["num_too_long"] = counts_.num_too_long;
  facts["num_unlabelled"] = counts_.num_unlabelled;
  facts["num_left_over"] = counts_.num_left_over;
  facts["num_cut"] = counts_.num_cut;
  facts["num_tokens"] = counts_.num_tokens;
  return facts;
}

void PackedDataset::describe(Reporter& reporter) const {
  reporter.info(cat("packing: ", counts_.num_packed, " samples in ", counts_.num_packs,
                    " packs of ", config_.pack_size, " tokens, ", format_fixed(100 * fill(), 1),
                    "% of them used"));
  std::vector<std::string> lost;
  if (counts_.num_too_long > 0) lost.push_back(cat(counts_.num_too_long, " longer than a pack"));
  if (counts_.num_unlabelled > 0) {
    lost.push_back(cat(counts_.num_unlabelled, " without a token that counts in the loss"));
  }
  if (counts_.num_left_over > 0) lost.push_back(cat(counts_.num_left_over, " beyond max_packs"));
  if (lost.empty()) return;
  reporter.warning(cat("packing leaves out ", counts_.num_samples - counts_.num_packed, " of ",
                       counts_.num_samples, " samples: ", join(lost, ", ")));
}

Sample PackedDataset::at(int64_t index) const {
  Sample pack;
  pack.row = index;
  for (const int64_t member : packs_[static_cast<size_t>(index)]) {
    Sample sample = samples_->at(member);
    const auto attended = static_cast<size_t>(sample.num_attended);
    const auto length = static_cast<size_t>(padded(sample.num_attended));
    if (pack.input_ids.empty()) pack.pad_id = sample.pad_id;
    sample.input_ids.resize(attended);
    sample.labels.resize(attended);
    sample.input_ids.resize(length, sample.pad_id);
    sample.labels.resize(length, kIgnoreIndex);
    if (!sample.token_types.empty()) {
      pack.token_types.resize(pack.input_ids.size(), 0);
      pack.token_types.insert(pack.token_types.end(), sample.token_types.begin(),
                              sample.token_types.end());
    }
    pack.input_ids.insert(pack.input_ids.end(), sample.input_ids.begin(), sample.input_ids.end());
    pack.labels.insert(pack.labels.end(), sample.labels.begin(), sample.labels.end());
    pack.document_lengths.push_back(static_cast<int64_t>(length));
  }
  pack.num_attended = std::ssize(pack.input_ids);
  const auto size = static_cast<size_t>(config_.pack_size);
  pack.input_ids.resize(size, pack.pad_id);
  pack.labels.resize(size, kIgnoreIndex);
  return pack;
}

std::string PackedDataset::origin(int64_t row) const {
  const std::vector<int64_t>& pack = packs_[static_cast<size_t>(row)];
  return cat("the pack of ", samples_->origin(pack.front()), " to ", samples_->origin(pack.back()));
}

}  // namespace automodel::datasets
