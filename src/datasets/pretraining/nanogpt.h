#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/field.h"
#include "datasets/loading/loader.h"
#include "datasets/pretraining/bin_shard.h"
#include "datasets/rows/python_random.h"
#include "datasets/samples/dataset.h"
#include "datasets/samples/most_tokens.h"

namespace automodel::datasets {

/// Options of NanogptDataset; names and defaults are upstream's.
struct NanogptDatasetConfig {
  std::vector<std::string> file_pattern;
  int64_t seq_len = 0;
  std::optional<int64_t> bos_token = std::nullopt;
  bool shuffle_files = false;
  bool align_to_bos = false;

  static constexpr auto fields() {
    using Config = NanogptDatasetConfig;
    return std::tuple{
        field("file_pattern", &Config::file_pattern,
              ".bin files of tokens: a path or a pattern with *, ? and [], or a list of those; the "
              "matches of a pattern are taken in alphabetical order")
            .required()
            .or_one(),
        field("seq_len", &Config::seq_len, "tokens of a sample")
            .at_least(1)
            .at_most(kMostTokens)
            .required(),
        field("bos_token", &Config::bos_token, "the token that begins a document").at_least(0),
        field("shuffle_files", &Config::shuffle_files,
              "a new order of the files in every pass over them"),
        field("align_to_bos", &Config::align_to_bos,
              "every sample begins with bos_token; what lies between samples is left out")};
  }

  /// Throws UserError for align_to_bos without bos_token.
  void validate() const;
};

/// Finds the files and reads their headers. Throws UserError, InputError.
void check(const NanogptDatasetConfig& config);

/// Samples of tokens that nanoGPT's scripts wrote (bin_shard.h), in the order in which the files
/// have them: a sample is seq_len tokens and their successors as labels, the next one begins behind
/// the last label, or at the next bos_token. What is left of a file is left out. The order is that
/// of upstream on one rank with at most one worker, its generator of file orders included; here
/// ranks take its samples in turn, so that a step trains on the same samples on any number of
/// ranks.
class NanogptDataset final : public IterableDataset {
 public:
  /// How often the files are gone through.
  enum class Passes {
    kEndless,  ///< epoch 0 has no end
    kOne       ///< an epoch is one pass; samples that do not fill all ranks are left out
  };

  /// Throws UserError, InputError.
  NanogptDataset(const NanogptDatasetConfig& config, const DataloaderConfig& loader,
                 const LoaderContext& context, Passes passes);

  std::optional<tensor::Batch> next() override;
  std::optional<int64_t> size() const override;
  void set_epoch(int64_t epoch) override;
  void rewind() override;
  Json state() const override;
  /// Goes on at the token at which the saved position is, on any number of ranks.
  void load_state(const Json& state) override;

 private:
  /// Where the search for the next sample of all ranks begins.
  struct Place {
    int64_t pass = 0;
    int64_t file = 0;   ///< its number in the order of the pass
    int64_t token = 0;  ///< of the file
  };

  int64_t sample_tokens() const { return config_.seq_len + 1; }
  void go_to(const Place& place);
  void begin_pass();
  const BinShard& shard() const;
  const BinTokens& tokens();
  bool find_sample();
  bool skip(int64_t num_samples);
  void leave_file();
  int64_t count_samples();
  Sample take_sample();
  std::vector<DataFingerprint> fingerprints() const;

  NanogptDatasetConfig config_;
  LoaderContext context_;
  Passes passes_;
  int64_t batch_size_;
  bool drop_last_;
  std::vector<BinShard> shards_;
  Json files_;                   ///< fingerprints
  int64_t samples_of_pass_ = 0;  ///< of a rank; 0 for an endless stream

  int64_t epoch_ = 0;
  int64_t taken_ = 0;  ///< samples of this rank in this epoch
  Place place_;
  PythonRandom random_;                      ///< as it is behind the order of the pass
  std::vector<int64_t> order_;               ///< of the files in the pass
  int64_t num_barren_ = 0;                   ///< files left since the last sample was found
  std::unique_ptr<const BinTokens> tokens_;  ///< of the file at place_; null until it is read
};

}  // namespace automodel::datasets
