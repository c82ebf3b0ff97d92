#include "training/gradient_histogram.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>

#include "comm/groups/sums.h"
#include "core/text.h"
#include "distributed/engine/split_engine.h"

namespace automodel::training {

namespace {

// A float32's sign, exponent and first two bits of its mantissa, as a number, are its bin: the bins
// of one sign come in the order of magnitude.
constexpr int kBinBits = 11;
constexpr int kShift = 32 - kBinBits;
constexpr int64_t kNumBins = int64_t{1} << kBinBits;
constexpr int64_t kNegative = kNumBins / 2;  // the first bin of negative numbers
constexpr int64_t kNotFinite =
    std::bit_cast<uint32_t>(std::numeric_limits<float>::infinity()) >> kShift;
constexpr int64_t kSmall = std::bit_cast<uint32_t>(0x1p-40F) >> kShift;

/// The smallest magnitude in a bin of positive numbers.
double lower_limit(int64_t bin) {
  return std::bit_cast<float>(static_cast<uint32_t>(bin) << kShift);
}

/// What is counted of a layer's gradients.
struct Counts {
  std::vector<double> bins = std::vector<double>(kNumBins);
  double sum = 0;
  double sum_of_squares = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();

  void add(const at::Tensor& values) {
    constexpr int64_t kChunk = int64_t{1} << 20;
    for (const at::Tensor& chunk : values.split(kChunk)) add_chunk(chunk.to(at::kFloat));
  }

  Histogram histogram() const;

 private:
  void add_chunk(const at::Tensor& values) {
    const at::Tensor finite = values.masked_select(values.isfinite());
    if (finite.numel() == 0) return;
    const at::Tensor chosen =
        finite.view(at::kInt).bitwise_right_shift(kShift).bitwise_and_(kNumBins - 1);
    const at::Tensor counts = at::bincount(chosen, {}, kNumBins).cpu();
    const int64_t* n = counts.const_data_ptr<int64_t>();
    for (size_t i = 0; i < bins.size(); ++i) bins[i] += static_cast<double>(n[i]);
    const at::Tensor wide = finite.to(at::kDouble);
    sum += wide.sum().item<double>();
    sum_of_squares += wide.square().sum().item<double>();
    const auto [low, high] = finite.aminmax();
    min = std::min(min, low.item<double>());
    max = std::max(max, high.item<double>());
  }
};

Histogram Counts::histogram() const {
  Histogram made;
  made.sum = sum;
  made.sum_of_squares = sum_of_squares;
  const auto add = [&](double limit, double count) {
    made.count += count;
    made.buckets.push_back({limit, count});
  };
  const auto bin = [&](int64_t index) { return bins[static_cast<size_t>(index)]; };
  for (int64_t i = kNotFinite - 1; i >= kSmall; --i) add(-lower_limit(i), bin(kNegative + i));
  double near_zero = 0;
  for (int64_t i = 0; i < kSmall; ++i) near_zero += bin(i) + bin(kNegative + i);
  add(lower_limit(kSmall), near_zero);
  for (int64_t i = kSmall; i < kNotFinite; ++i) {
    const double limit =
        i + 1 < kNotFinite ? lower_limit(i + 1) : double{std::numeric_limits<float>::max()};
    add(limit, bin(i));
  }
  const auto is_used = [](const Histogram::Bucket& bucket) { return bucket.count > 0; };
  const auto first = std::find_if(made.buckets.begin(), made.buckets.end(), is_used);
  const auto last = std::find_if(made.buckets.rbegin(), made.buckets.rend(), is_used).base();
  made.buckets = first < last ? std::vector(first, last) : std::vector<Histogram::Bucket>();
  if (made.count > 0) {
    made.min = min;
    made.max = max;
  }
  return made;
}

/// The gradients that this rank counts.
std::map<std::string, Counts> count_own(const distributed::Engine& engine) {
  std::map<std::string, Counts> layers;
  for (const tensor::FlatShard& shard : distributed::saved_shards(engine.gradients(), engine)) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      layers[layer_of(segment.fqn)].add(shard.view(segment));
    }
  }
  return layers;
}

/// Adds up the ranks' counts of each layer; a rank may have none of some.
void sum_over_ranks(const comm::ProcessGroup& everybody, std::vector<Counts>& layers) {
  constexpr size_t kNumSums = size_t{kNumBins} + 2;
  std::vector<double> sums;
  std::vector<double> ends;
  for (const Counts& counts : layers) {
    sums.insert(sums.end(), counts.bins.begin(), counts.bins.end());
    sums.insert(sums.end(), {counts.sum, counts.sum_of_squares});
    ends.insert(ends.end(), {-counts.min, counts.max});
  }
  sums = comm::sum_over(everybody, std::move(sums));
  const at::Tensor largest = at::tensor(ends, at::kDouble);
  everybody.all_reduce(largest, comm::ReduceOp::kMax);
  const double* end = largest.const_data_ptr<double>();
  auto next = sums.cbegin();
  for (Counts& counts : layers) {
    std::copy_n(next, kNumBins, counts.bins.begin());
    counts.sum = next[kNumBins];
    counts.sum_of_squares = next[kNumBins + 1];
    next += kNumSums;
    counts.min = -*end++;
    counts.max = *end++;
  }
}

}  // namespace

std::string layer_of(const std::string& fqn) {
  const std::vector<std::string> parts = split(fqn, '.');
  const auto is_number = [](const std::string& part) {
    return !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
  };
  const auto number = std::find_if(parts.begin(), parts.end(), is_number);
  const auto end = number != parts.end() ? number + 1
                   : parts.size() > 1    ? parts.end() - 1
                                         : parts.end();
  return join(std::vector<std::string>(parts.begin(), end), ".");
}

std::vector<LayerHistogram> gradient_histograms(const distributed::Engine& engine,
                                                const comm::ProcessGroup& everybody) {
  std::map<std::string, Counts> own = count_own(engine);
  std::vector<std::string> names;
  names.reserve(own.size());
  for (const auto& [layer, counts] : own) names.push_back(layer);
  const std::vector<std::string> layers = distributed::union_over(everybody, names);
  if (layers.empty()) return {};
  std::vector<Counts> counts;
  for (const std::string& layer : layers) counts.push_back(std::move(own[layer]));
  sum_over_ranks(everybody, counts);
  std::vector<LayerHistogram> all;
  for (size_t i = 0; i < layers.size(); ++i) all.push_back({layers[i], counts[i].histogram()});
  return all;
}

}  // namespace automodel::training
