#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace automodel::datasets {

/// The tokens of each sample when documents are read one after another: Megatron's document, sample
/// and shuffle index.
struct SampleIndex {
  /// The beginning of a sample: an index into `documents` and an offset.
  struct Begin {
    int64_t place = 0;
    int64_t offset = 0;
  };
  std::vector<int32_t> documents;  ///< of all epochs, shuffled
  std::vector<Begin> begins;       ///< of every sample, and the end of the last one
  std::vector<int64_t> shuffled;   ///< the samples in the order in which they are drawn

  int64_t size() const { return static_cast<int64_t>(shuffled.size()); }
};

/// What the index must contain.
struct SampleIndexOptions {
  int64_t sequence_length = 0;
  std::optional<int64_t> num_samples = std::nullopt;  ///< at least so many; one epoch when unset
  uint32_t seed = 0;
};

/// The index of documents [begin, end) with these lengths. It takes as many epochs as num_samples
/// needs; each sample has sequence_length + 1 tokens, the last of which is also the next one's
/// first. The last of several epochs is shuffled separately when less than 80 % of it is needed.
/// numpy's RandomState(seed) orders documents, then samples. Throws InputError when the documents
/// have too few tokens for one sample.
SampleIndex build_sample_index(std::span<const int32_t> lengths,
                               std::pair<int64_t, int64_t> documents,
                               const SampleIndexOptions& options);

/// A sample of a blend.
struct BlendedSample {
  int32_t dataset = 0;
  int64_t sample = 0;
  bool operator==(const BlendedSample&) const = default;
};

/// `size` samples from datasets with weights that sum to 1: each is taken from the dataset that is
/// furthest behind its share.
std::vector<BlendedSample> blend_by_weight(std::span<const double> weights, int64_t size);

/// All samples of datasets of these sizes, blended in proportion to them.
std::vector<BlendedSample> blend_all(std::span<const int64_t> sizes);

/// Weights divided by their sum, which is taken as numpy takes it.
std::vector<double> normalized(std::vector<double> weights);

/// Parses the shares of training, validation and test ("900,50,50", "0.99, 0.01, 0"); returns where
/// each part of the documents begins and ends, as fractions, nullopt for an empty part. Throws
/// UserError.
std::array<std::optional<std::pair<double, double>>, 3> parse_shares(std::string_view text);

}  // namespace automodel::datasets
