#pragma once

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "core/field.h"
#include "datasets/samples/dataset.h"
#include "datasets/samples/most_tokens.h"

namespace automodel::datasets {

/// Options of MockIterableDataset; names and defaults are upstream's.
struct MockIterableDatasetConfig {
  int64_t vocab_size = 1024;
  int64_t seq_len = 1024;
  int64_t num_samples = 1000000;
  int64_t batch_size = 1;
  std::optional<std::vector<int64_t>> exclude_token_ids = std::nullopt;

  static constexpr auto fields() {
    using Config = MockIterableDatasetConfig;
    return std::tuple{
        field("vocab_size", &Config::vocab_size, "ids are drawn from 0 to vocab_size - 1")
            .at_least(1),
        field("seq_len", &Config::seq_len, "tokens in a sequence").at_least(2).at_most(kMostTokens),
        field("num_samples", &Config::num_samples, "batches in an epoch, on every rank")
            .at_least(1),
        field("batch_size", &Config::batch_size, "sequences in a batch")
            .at_least(1)
            .at_most(1 << 20),
        field("exclude_token_ids", &Config::exclude_token_ids,
              "ids never drawn (the pad id, say)")};
  }

  /// Throws UserError.
  void validate() const;
};

/// Batches of uniformly random tokens, made on request. Each token depends only on the seed, the
/// epoch and its place in the epoch; ranks take batches in turn, so each batch is used once.
/// Batches are [batch_size, seq_len] without collater or padding; labels are the tokens shifted,
/// the last one kIgnoreIndex.
class MockIterableDataset final : public IterableDataset {
 public:
  struct Place {
    int num_replicas = 1;
    int rank = 0;
    int64_t seed = 42;
  };

  /// Throws UserError for ids to exclude that are not in the vocabulary or leave none.
  MockIterableDataset(const MockIterableDatasetConfig& config, const Place& place);

  std::optional<tensor::Batch> next() override;
  std::optional<int64_t> size() const override { return config_.num_samples; }
  void set_epoch(int64_t epoch) override;
  void rewind() override { taken_ = 0; }
  Json state() const override;
  void load_state(const Json& state) override;

 private:
  MockIterableDatasetConfig config_;
  Place place_;
  std::vector<int64_t> allowed_ids_;  ///< empty: all
  int64_t epoch_ = 0;
  int64_t taken_ = 0;  ///< batches of this rank
};

}  // namespace automodel::datasets
