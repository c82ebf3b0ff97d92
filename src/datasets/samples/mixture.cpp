#include "datasets/samples/mixture.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>

#include "core/error.h"
#include "core/text.h"
#include "datasets/rows/numpy_random.h"
#include "datasets/rows/order_checksum.h"

namespace automodel::datasets {

namespace {

/// Samples of an order that is kept: 8 GiB of it.
constexpr int64_t kMostSamples = int64_t{1} << 30;

std::vector<int64_t> begins_of(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> begins = {0};
  for (const int64_t size : sizes) begins.push_back(begins.back() + size);
  return begins;
}

/// The part that a place in all parts, one after another, lies in, and the place in that part.
std::pair<size_t, int64_t> locate(const std::vector<int64_t>& begins, int64_t place) {
  const auto behind = std::ranges::upper_bound(begins, place);
  const auto part = static_cast<size_t>(std::distance(begins.begin(), behind) - 1);
  return {part, place - begins[part]};
}

InputError too_long(const std::string& why) {
  return InputError(
      cat("interleaved datasets would have more than ", kMostSamples, " samples: ", why));
}

/// Samples of the parts in turn.
std::vector<int64_t> in_turn(const std::vector<int64_t>& sizes, StoppingStrategy stopping) {
  const std::vector<int64_t> begins = begins_of(sizes);
  const auto [shortest, longest] = std::ranges::minmax(sizes);
  const bool ends_first = stopping == StoppingStrategy::kFirstExhausted;
  const int64_t num_rounds = ends_first ? shortest : longest;
  if (num_rounds > kMostSamples / std::ssize(sizes)) {
    throw too_long(cat(sizes.size(), " datasets of up to ", longest));
  }
  std::vector<int64_t> order;
  for (int64_t round = 0; round < num_rounds; ++round) {
    for (size_t part = 0; part < sizes.size(); ++part) {
      const bool has_ended = round >= sizes[part];
      if (has_ended && stopping == StoppingStrategy::kAllExhaustedWithoutReplacement) continue;
      order.push_back(begins[part] + round % sizes[part]);
    }
  }
  return order;
}

/// Refuses draws that would go on for longer than anybody waits.
void check_length(const std::vector<int64_t>& sizes, const Interleaving& mixture) {
  const bool ends_first = mixture.stopping == StoppingStrategy::kFirstExhausted;
  double expected = ends_first ? HUGE_VAL : 0;
  for (size_t part = 0; part < sizes.size(); ++part) {
    const double of_part = static_cast<double>(sizes[part]) / mixture.probabilities[part];
    expected = ends_first ? std::min(expected, of_part) : std::max(expected, of_part);
  }
  if (expected > static_cast<double>(kMostSamples)) {
    throw too_long("a dataset's probability is too small for its size");
  }
}

/// Samples of parts that are drawn by their chances, as numpy's choice() draws them.
std::vector<int64_t> drawn(const std::vector<int64_t>& sizes, const Interleaving& mixture) {
  check_length(sizes, mixture);
  std::vector<double> bounds;
  double sum = 0;
  for (const double probability : mixture.probabilities) bounds.push_back(sum += probability);
  for (double& bound : bounds) bound /= sum;
  const std::vector<int64_t> begins = begins_of(sizes);
  std::vector<int64_t> next(sizes.size(), 0);
  std::vector<bool> has_ended(sizes.size(), false);
  size_t num_ended = 0;
  const size_t num_to_end =
      mixture.stopping == StoppingStrategy::kFirstExhausted ? 1 : sizes.size();
  const bool replaces = mixture.stopping != StoppingStrategy::kAllExhaustedWithoutReplacement;
  const std::function<double()> uniform = numpy_uniform(mixture.seed);
  std::vector<int64_t> order;
  while (num_ended < num_to_end) {
    const auto above = std::ranges::upper_bound(bounds, uniform());
    const auto part =
        static_cast<size_t>(std::min(std::distance(bounds.begin(), above), std::ssize(bounds) - 1));
    if (has_ended[part] && !replaces) continue;
    order.push_back(begins[part] + next[part]);
    if (++next[part] < sizes[part]) continue;
    next[part] = 0;
    if (has_ended[part]) continue;
    has_ended[part] = true;
    ++num_ended;
  }
  return order;
}

}  // namespace

std::vector<int64_t> interleaved_order(const std::vector<int64_t>& sizes,
                                       const Interleaving& interleaving) {
  for (const int64_t size : sizes) AM_CHECK(size > 0, "an empty dataset in a mixture");
  if (interleaving.probabilities.empty()) return in_turn(sizes, interleaving.stopping);
  AM_CHECK(interleaving.probabilities.size() == sizes.size(), interleaving.probabilities.size(),
           " probabilities of ", sizes.size(), " datasets");
  return drawn(sizes, interleaving);
}

MixedDataset::MixedDataset(std::vector<Part> parts, const std::optional<Interleaving>& interleaving)
    : parts_(std::move(parts)) {
  AM_CHECK(!parts_.empty(), "a mixture of nothing");
  std::vector<int64_t> sizes, row_ends;
  for (const Part& part : parts_) {
    sizes.push_back(part.dataset->size());
    row_ends.push_back(part.dataset->row_end());
  }
  begins_ = begins_of(sizes);
  row_begins_ = begins_of(row_ends);
  if (interleaving) order_ = interleaved_order(sizes, *interleaving);
}

int64_t MixedDataset::size() const {
  return order_.empty() ? begins_.back() : std::ssize(order_);
}

int64_t MixedDataset::place_of(int64_t index) const {
  return order_.empty() ? index : order_[static_cast<size_t>(index)];
}

Sample MixedDataset::at(int64_t index) const {
  const auto [part, place] = locate(begins_, place_of(index));
  Sample sample = parts_[part].dataset->at(place);
  // A row that took another's place is no index of the mixture: it is counted behind those.
  sample.row = sample.row == place ? index : size() + row_begins_[part] + sample.row;
  return sample;
}

std::string MixedDataset::origin(int64_t row) const {
  const auto [part, of_part] =
      row < size() ? locate(begins_, place_of(row)) : locate(row_begins_, row - size());
  return parts_[part].dataset->origin(of_part);
}

std::vector<DataFingerprint> MixedDataset::files() const {
  std::vector<DataFingerprint> files;
  for (const Part& part : parts_) {
    for (DataFingerprint& file : part.dataset->files()) files.push_back(std::move(file));
  }
  return files;
}

uint64_t MixedDataset::order_checksum() const {
  OrderChecksum checksum;
  for (const Part& part : parts_) {
    checksum.add(static_cast<int64_t>(part.dataset->order_checksum()));
  }
  return checksum.add(begins_).add(order_).value();
}

bool MixedDataset::depends_on_lengths() const {
  return std::ranges::any_of(parts_,
                             [](const Part& part) { return part.dataset->depends_on_lengths(); });
}

int64_t MixedDataset::num_samples_of(size_t part) const {
  if (order_.empty()) return parts_[part].dataset->size();
  return std::ranges::count_if(
      order_, [&](int64_t place) { return place >= begins_[part] && place < begins_[part + 1]; });
}

Json MixedDataset::facts() const {
  Json parts = Json::array();
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts.push_back(Json::Object{{"name", parts_[i].name},
                                 {"num_samples", num_samples_of(i)},
                                 {"num_rows", parts_[i].dataset->size()}});
  }
  return Json::Object{{"num_samples", size()}, {"datasets", std::move(parts)}};
}

int64_t MixedDataset::index_to_show(int64_t number) const {
  if (!order_.empty()) return number;
  // Until the shortest of those that go on has ended, each of them is shown once a round.
  std::vector<size_t> open(parts_.size());
  std::iota(open.begin(), open.end(), size_t{0});
  for (int64_t round = 0; !open.empty();) {
    int64_t end = parts_[open[0]].dataset->size();
    for (const size_t part : open) end = std::min(end, parts_[part].dataset->size());
    const int64_t num_shown = (end - round) * std::ssize(open);
    if (number < num_shown) {
      const size_t part = open[static_cast<size_t>(number % std::ssize(open))];
      round += number / std::ssize(open);
      return begins_[part] + parts_[part].dataset->index_to_show(round);
    }
    number -= num_shown;
    round = end;
    std::erase_if(open, [&](size_t part) { return parts_[part].dataset->size() == end; });
  }
  AM_CHECK(false, "no sample has this number");
}

}  // namespace automodel::datasets
