#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "core/field.h"
#include "datasets/samples/dataset.h"

namespace automodel::datasets {

/// Options of build_unpacked_dataset; names and defaults are upstream's.
struct MockUnpackedDatasetConfig {
  int64_t num_sentences = 10;
  double mean_len = 20.0;
  double std_len = 6.0;
  int64_t vocab_size = 100;
  int64_t max_sentence_len = 64;
  int64_t seed = 0;

  static constexpr auto fields() {
    using Config = MockUnpackedDatasetConfig;
    return std::tuple{
        field("num_sentences", &Config::num_sentences, "samples").at_least(1).at_most(1 << 30),
        field("mean_len", &Config::mean_len, "mean tokens of a sentence before its end")
            .at_least(0),
        field("std_len", &Config::std_len, "standard deviation of the tokens of a sentence")
            .at_least(0),
        field("vocab_size", &Config::vocab_size,
              "ids are drawn from 2 to vocab_size - 1; 1 ends a sentence")
            .at_least(3),
        field("max_sentence_len", &Config::max_sentence_len, "most tokens before a sentence's end")
            .at_least(1),
        field("seed", &Config::seed, "of the random numbers, 0 to 2^32 - 1")
            .at_least(0)
            .at_most(UINT32_MAX),
    };
  }
};

/// Sentences of random tokens and normally distributed lengths, the same as upstream's: Python's
/// random numbers in its order. As there, labels are the tokens themselves, not the next ones.
class MockUnpackedDataset final : public Dataset {
 public:
  explicit MockUnpackedDataset(const MockUnpackedDatasetConfig& config);

  int64_t size() const override { return static_cast<int64_t>(sentences_.size()); }
  Sample at(int64_t index) const override;
  std::string origin(int64_t row) const override;
  std::vector<DataFingerprint> files() const override { return {}; }
  uint64_t order_checksum() const override;

 private:
  std::vector<std::vector<int64_t>> sentences_;
};

}  // namespace automodel::datasets
