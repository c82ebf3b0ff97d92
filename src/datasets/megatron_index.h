#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace automodel::datasets {

/// Which tokens are a sample of documents that are read one behind the other: Megatron's document,
/// sample and shuffle index.
struct SampleIndex {
  /// Where a sample begins: in the document that stands at a place of `documents`.
  struct Begin {
    int64_t place = 0;
    int64_t offset = 0;
  };
  std::vector<int32_t> documents;  ///< of all epochs, shuffled
  std::vector<Begin> begins;       ///< of every sample, and behind the last one
  std::vector<int64_t> shuffled;   ///< the samples in the order in which they are drawn

  int64_t size() const { return static_cast<int64_t>(shuffled.size()); }
};

/// What is indexed.
struct SampleIndexOptions {
  int64_t sequence_length = 0;
  std::optional<int64_t> num_samples = std::nullopt;  ///< at least so many; one epoch when unset
  uint32_t seed = 0;
};

/// The index of documents [begin, end) of some with these lengths: as many epochs as num_samples
/// needs, each sample sequence_length + 1 tokens of which the last is the next one's first. Of
/// several epochs the last is shuffled apart when less than 80 % of it is wanted. numpy's
/// RandomState(seed) orders documents, then samples. Throws InputError when the documents' tokens
/// do not make one sample.
SampleIndex build_sample_index(std::span<const int32_t> lengths,
                               std::pair<int64_t, int64_t> documents,
                               const SampleIndexOptions& options);

/// A sample of a blend.
struct BlendedSample {
  int32_t dataset = 0;
  int64_t sample = 0;
  bool operator==(const BlendedSample&) const = default;
};

/// `size` samples of datasets by weights that sum to 1: each is of the dataset that is furthest
/// behind its share.
std::vector<BlendedSample> blend_by_weight(std::span<const double> weights, int64_t size);

/// All samples of datasets of these sizes, blended in proportion to them.
std::vector<BlendedSample> blend_all(std::span<const int64_t> sizes);

/// Weights divided by their sum, which is taken as numpy takes it.
std::vector<double> normalized(std::vector<double> weights);

/// The shares of training, validation and test ("900,50,50", "0.99, 0.01, 0") as the part of the
/// documents where each begins and ends; nullopt for one that has none. Throws UserError.
std::array<std::optional<std::pair<double, double>>, 3> parse_shares(std::string_view text);

}  // namespace automodel::datasets
