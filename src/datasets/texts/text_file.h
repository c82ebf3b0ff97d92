#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/field.h"
#include "datasets/rows/row_source.h"
#include "datasets/samples/dataset.h"
#include "datasets/samples/most_tokens.h"
#include "datasets/samples/text_encoder.h"

namespace automodel::datasets {

/// Options of TextFileDataset, for pretraining on plain text.
struct TextFileDatasetConfig {
  std::vector<std::string> path;
  int64_t seq_length = 1024;
  std::string split = "train";
  std::string text_column = "text";
  bool add_bos = false;
  bool add_eos = true;

  /// All rows of all files: slices count samples, not rows.
  SourceOptions source() const { return {path, std::nullopt}; }

  static constexpr auto fields() {
    using Config = TextFileDatasetConfig;
    return std::tuple{
        field("path", &Config::path,
              "text file (one document), or JSON or JSONL file with a document a row, or a list of "
              "such")
            .required()
            .or_one(),
        field("seq_length", &Config::seq_length, "tokens in a sample")
            .at_least(1)
            .at_most(kMostTokens),
        field("split", &Config::split,
              "which of the samples, such as train[:95%] for training and train[95%:] for "
              "validation"),
        field("text_column", &Config::text_column, "column of JSON rows that holds the text"),
        field("add_bos", &Config::add_bos, "the tokenizer's BOS before every document"),
        field("add_eos", &Config::add_eos, "the tokenizer's EOS after every document")};
  }
};

/// Checks that the files are there and the first row has its column, without tokenizing.
SourceDescription check(const TextFileDatasetConfig& config);

/// Text as one stream of tokens, cut into samples of seq_length: sample i has tokens [i * S, i * S
/// + S) as input and the tokens one later as labels; an incomplete last sample is dropped. All text
/// is tokenized once, in the constructor, and kept (4 bytes per token). A slice of the split counts
/// samples.
class TextFileDataset final : public Dataset {
 public:
  /// Throws InputError when a file is missing or the text is too short for one sample.
  TextFileDataset(const TextFileDatasetConfig& config, const TextEncoder& encoder);

  int64_t size() const override { return num_samples_; }
  Sample at(int64_t index) const override;
  std::string origin(int64_t row) const override;
  std::vector<DataFingerprint> files() const override { return files_; }
  uint64_t order_checksum() const override;

  int64_t num_tokens() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  std::string name_;
  int64_t seq_length_;
  int64_t first_sample_ = 0;
  int64_t num_samples_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<DataFingerprint> files_;
};

}  // namespace automodel::datasets
