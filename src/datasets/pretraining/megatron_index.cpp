#include "datasets/pretraining/megatron_index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "core/divide.h"
#include "core/error.h"
#include "core/text.h"
#include "datasets/rows/numpy_random.h"

namespace automodel::datasets {

namespace {

constexpr double kLeastOfFinalEpoch = 0.80;

/// The documents of so many epochs, shuffled together, or the last epoch's apart.
std::vector<int32_t> order_documents(std::pair<int64_t, int64_t> documents, int64_t num_epochs,
                                     bool has_final_epoch_apart, NumpyRandomState& random) {
  if (has_final_epoch_apart && num_epochs > 1) {
    std::vector<int32_t> first = order_documents(documents, num_epochs - 1, false, random);
    const std::vector<int32_t> last = order_documents(documents, 1, false, random);
    first.insert(first.end(), last.begin(), last.end());
    return first;
  }
  std::vector<int32_t> order;
  order.reserve(static_cast<size_t>(num_epochs * (documents.second - documents.first)));
  for (int64_t epoch = 0; epoch < num_epochs; ++epoch) {
    for (int64_t document = documents.first; document < documents.second; ++document) {
      order.push_back(static_cast<int32_t>(document));
    }
  }
  random.shuffle(std::span(order));
  return order;
}

/// Where samples begin that follow each other, sharing one token.
std::vector<SampleIndex::Begin> find_begins(std::span<const int32_t> lengths,
                                            std::span<const int32_t> documents, int64_t num_samples,
                                            int64_t sequence_length) {
  std::vector<SampleIndex::Begin> begins;
  begins.reserve(static_cast<size_t>(num_samples) + 1);
  SampleIndex::Begin at;
  begins.push_back(at);
  for (int64_t sample = 0; sample < num_samples; ++sample) {
    // To the sample's last token, which is the next one's first.
    int64_t left = sequence_length;
    while (true) {
      const auto document = static_cast<size_t>(documents[static_cast<size_t>(at.place)]);
      const int64_t rest = lengths[document] - at.offset;
      if (left < rest) break;
      left -= rest;
      ++at.place;
      at.offset = 0;
      AM_CHECK(at.place < std::ssize(documents), "sample ", sample, " of ", num_samples);
    }
    at.offset += left;
    begins.push_back(at);
  }
  return begins;
}

std::vector<int64_t> shuffle_samples(int64_t num_first, int64_t num_samples,
                                     NumpyRandomState& random) {
  std::vector<int64_t> order(static_cast<size_t>(num_samples));
  std::iota(order.begin(), order.end(), int64_t{0});
  const std::span<int64_t> all(order);
  random.shuffle(all.first(static_cast<size_t>(num_first)));
  if (num_first < num_samples) random.shuffle(all.subspan(static_cast<size_t>(num_first)));
  return order;
}

/// numpy.sum: eight sums side by side, and halves of more than 128 values.
double numpy_sum(std::span<const double> values) {
  if (values.size() < 8) return std::accumulate(values.begin(), values.end(), 0.0);
  if (values.size() > 128) {
    size_t half = values.size() / 2;
    half -= half % 8;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  std::array<double, 8> sums = {};
  std::copy_n(values.begin(), 8, sums.begin());
  size_t at = 8;
  for (; at + 8 <= values.size(); at += 8) {
    for (size_t i = 0; i < 8; ++i) sums[i] += values[at + i];
  }
  double sum =
      ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  for (; at < values.size(); ++at) sum += values[at];
  return sum;
}

/// The dataset that is furthest behind its share after `num_drawn` samples, the first of several.
template <typename Datasets, typename Weight>
size_t furthest_behind(const Datasets& datasets, int64_t num_drawn,
                       const std::vector<int64_t>& counts, const Weight& weight_of) {
  const double drawn = std::max(static_cast<double>(num_drawn), 1.0);
  size_t furthest = 0;
  double behind = std::numeric_limits<double>::lowest();
  for (const size_t dataset : datasets) {
    const double error = weight_of(dataset) * drawn - static_cast<double>(counts[dataset]);
    if (error > behind) {
      behind = error;
      furthest = dataset;
    }
  }
  return furthest;
}

}  // namespace

SampleIndex build_sample_index(std::span<const int32_t> lengths,
                               std::pair<int64_t, int64_t> documents,
                               const SampleIndexOptions& options) {
  const int64_t length = options.sequence_length;
  AM_CHECK(length > 0, "samples of ", length, " tokens");
  int64_t per_epoch = 0;
  for (int64_t i = documents.first; i < documents.second; ++i) {
    per_epoch += lengths[static_cast<size_t>(i)];
  }
  const int64_t wanted = options.num_samples.value_or(0) * length + 1;
  if (per_epoch == 0 || (!options.num_samples && per_epoch <= length)) {
    throw InputError(cat(documents.second - documents.first, " documents with ", per_epoch,
                         " tokens do not make one sample of ", length, " + 1"));
  }
  const int64_t num_epochs = std::max<int64_t>(ceil_div(wanted, per_epoch), 1);
  const int64_t num_samples = (num_epochs * per_epoch - 1) / length;
  // Shuffled with the others, a last epoch of which little is wanted would be drawn too early.
  const int64_t num_before = ((num_epochs - 1) * per_epoch - 1) / length;
  bool is_apart = false;
  if (num_epochs > 1) {
    const int64_t num_of_last = *options.num_samples - num_before;
    const int64_t num_of_epoch = (per_epoch - 1) / length;
    is_apart =
        num_of_last < static_cast<int64_t>(kLeastOfFinalEpoch * static_cast<double>(num_of_epoch));
  }
  NumpyRandomState random(options.seed);
  SampleIndex index;
  index.documents = order_documents(documents, num_epochs, is_apart, random);
  index.begins = find_begins(lengths, index.documents, num_samples, length);
  index.shuffled = shuffle_samples(is_apart ? num_before : num_samples, num_samples, random);
  return index;
}

std::vector<BlendedSample> blend_by_weight(std::span<const double> weights, int64_t size) {
  std::vector<BlendedSample> blend;
  blend.reserve(static_cast<size_t>(size));
  std::vector<int64_t> counts(weights.size(), 0);
  std::vector<size_t> all(weights.size());
  std::iota(all.begin(), all.end(), size_t{0});
  for (int64_t i = 0; i < size; ++i) {
    const size_t dataset =
        furthest_behind(all, i, counts, [&](size_t each) { return weights[each]; });
    blend.push_back({static_cast<int32_t>(dataset), counts[dataset]++});
  }
  return blend;
}

std::vector<BlendedSample> blend_all(std::span<const int64_t> sizes) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  std::vector<int64_t> counts(sizes.size(), 0);
  std::set<size_t> open;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 0) open.insert(i);
  }
  std::vector<BlendedSample> blend;
  blend.reserve(static_cast<size_t>(total));
  for (int64_t i = 0; i < total; ++i) {
    const size_t dataset = furthest_behind(open, i, counts, [&](size_t each) {
      return static_cast<double>(sizes[each]) / static_cast<double>(total);
    });
    blend.push_back({static_cast<int32_t>(dataset), counts[dataset]});
    if (++counts[dataset] == sizes[dataset]) open.erase(dataset);
  }
  return blend;
}

std::vector<double> normalized(std::vector<double> weights) {
  const double sum = numpy_sum(weights);
  for (double& weight : weights) weight /= sum;
  return weights;
}

std::array<std::optional<std::pair<double, double>>, 3> parse_shares(std::string_view text) {
  std::vector<double> shares;
  for (const std::string& part : split(text, ',')) {
    const std::optional<double> share = parse_double(trim(part));
    if (!share || !(*share >= 0) || shares.size() == 3) {
      throw UserError(cat("split '", text,
                          "': expected up to three numbers at least 0, the shares of training, "
                          "validation and test, such as 900,50,50"));
    }
    shares.push_back(*share);
  }
  shares.resize(3, 0.0);
  if (shares[0] + shares[1] + shares[2] <= 0) {
    throw UserError(cat("split '", text, "' gives no part anything"));
  }
  shares = normalized(std::move(shares));
  std::array<std::optional<std::pair<double, double>>, 3> bounds;
  double begin = 0;
  for (size_t i = 0; i < 3; ++i) {
    const double end = begin + shares[i];
    if (end > begin) bounds[i] = std::pair{begin, end};
    begin = end;
  }
  return bounds;
}

}  // namespace automodel::datasets
