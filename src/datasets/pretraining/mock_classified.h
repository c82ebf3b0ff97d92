#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "core/field.h"
#include "datasets/samples/classified.h"
#include "datasets/samples/dataset.h"
#include "datasets/samples/most_tokens.h"

namespace automodel::datasets {

/// Options of MockSequenceClassificationDataset; names and defaults are upstream's.
struct MockSequenceClassificationDatasetConfig {
  int64_t num_samples = 64;
  int64_t num_labels = 2;
  int64_t vocab_size = 256;
  int64_t max_seq_len = 32;
  int64_t seed = 0;

  static constexpr auto fields() {
    using Config = MockSequenceClassificationDatasetConfig;
    constexpr double kMostDrawn = UINT32_MAX - 1;  // what one draw of random numbers reaches
    return std::tuple{
        field("num_samples", &Config::num_samples, "samples").at_least(1),
        field("num_labels", &Config::num_labels, "classes").at_least(1).at_most(kMostDrawn),
        field("vocab_size", &Config::vocab_size, "ids are drawn from 2 to vocab_size - 1")
            .at_least(3)
            .at_most(kMostDrawn),
        field("max_seq_len", &Config::max_seq_len, "lengths are drawn from 4 to this")
            .at_least(4)
            .at_most(kMostTokens),
        field("seed", &Config::seed, "of the random numbers, 0 to 2^32 - 1")
            .at_least(0)
            .at_most(UINT32_MAX),
    };
  }
};

/// Throws InputError where classes are drawn that the model does not have.
void check_drawn_classes(const MockSequenceClassificationDatasetConfig& config,
                         const ClassifierFacts& model);

/// Random tokens with random classes, the same as upstream's: Python's random numbers in its order.
class MockSequenceClassificationDataset final : public Dataset {
 public:
  /// Throws as check_drawn_classes().
  MockSequenceClassificationDataset(const MockSequenceClassificationDatasetConfig& config,
                                    const ClassifierFacts& model);

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  Sample at(int64_t index) const override { return samples_[static_cast<size_t>(index)]; }
  std::string origin(int64_t row) const override;
  std::vector<DataFingerprint> files() const override { return {}; }
  uint64_t order_checksum() const override;

 private:
  std::vector<Sample> samples_;
};

}  // namespace automodel::datasets
