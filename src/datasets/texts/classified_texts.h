#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/field.h"
#include "datasets/rows/row_source.h"
#include "datasets/samples/classified.h"
#include "datasets/samples/dataset.h"
#include "datasets/samples/most_tokens.h"
#include "datasets/samples/text_encoder.h"

namespace automodel::datasets {

/// The columns of a row whose text, or pair of texts, has a class.
struct ClassifiedColumns {
  std::string text;
  std::optional<std::string> pair = std::nullopt;
  std::string label;
};

/// Options of automodel.SequenceClassificationDataset.
struct SequenceClassificationDatasetConfig {
  std::vector<std::string> path_or_dataset_id;
  std::string text_column = "text";
  std::optional<std::string> text_pair_column = std::nullopt;
  std::string label_column = "label";
  std::optional<std::string> split = "train";
  std::optional<std::string> name = std::nullopt;
  std::optional<int64_t> max_length = std::nullopt;
  std::optional<int64_t> limit_dataset_samples = std::nullopt;
  std::optional<int64_t> shuffle_seed = std::nullopt;

  static constexpr auto fields() {
    using Config = SequenceClassificationDatasetConfig;
    return std::tuple{
        field("path_or_dataset_id", &Config::path_or_dataset_id,
              "file of rows (JSON, Parquet, Arrow, CSV), folder of them, data set of the hub, or a "
              "list of them")
            .required()
            .or_one(),
        field("text_column", &Config::text_column, "column with the text"),
        field("text_pair_column", &Config::text_pair_column,
              "column with a second text, which the tokenizer puts behind the first one"),
        field("label_column", &Config::label_column,
              "column with the class: its number from 0, or its name in the model's id2label"),
        field("split", &Config::split,
              "split, with an optional slice such as train[:90%]; a sum of them: train[:10%]+test"),
        field("name", &Config::name, "configuration of the data set, or a subfolder of its folder"),
        field("max_length", &Config::max_length,
              "tokens to cut samples to, special ones included; of a pair the longer text is cut "
              "first")
            .at_least(1)
            .at_most(kMostTokens),
        field("limit_dataset_samples", &Config::limit_dataset_samples, "use only the first rows")
            .at_least(1),
        field("shuffle_seed", &Config::shuffle_seed,
              "shuffle the rows by it before a slice by row numbers, for files that are sorted by "
              "class; absent: as they are")
            .at_least(0)};
  }

  SourceOptions source() const;
  ClassifiedColumns columns() const { return {text_column, text_pair_column, label_column}; }
  std::vector<std::string> columns_read() const;
  std::optional<int64_t> most_tokens(const TextEncoder&) const { return max_length; }
};

/// Options of GLUE_MRPC; names and defaults are upstream's, but for path_or_dataset_id.
struct GlueMrpcConfig {
  std::string path_or_dataset_id = "glue";
  std::string split = "train";
  std::optional<int64_t> num_samples_limit = std::nullopt;
  bool trust_remote_code = true;
  std::optional<int64_t> max_length = 256;

  static constexpr auto fields() {
    using Config = GlueMrpcConfig;
    return std::tuple{
        field("path_or_dataset_id", &Config::path_or_dataset_id,
              "file or folder of rows, or data set of the hub, with columns sentence1, sentence2, "
              "label; of the hub's its configuration mrpc"),
        field("split", &Config::split,
              "split, with an optional slice such as train[:90%]; a sum of them: train[:10%]+test"),
        field("num_samples_limit", &Config::num_samples_limit, "use only the first rows")
            .at_least(1),
        field("trust_remote_code", &Config::trust_remote_code, "nothing")
            .without_effect("no code is ever loaded"),
        field(
            "max_length", &Config::max_length,
            "tokens to cut pairs to, special ones included; null: the tokenizer's own limit up to "
            "8192, else 1024")
            .at_least(1)
            .at_most(kMostTokens)};
  }

  SourceOptions source() const;
  ClassifiedColumns columns() const { return {"sentence1", "sentence2", "label"}; }
  static std::vector<std::string> columns_read() {
    return {"sentence1", "sentence2", "label", "idx"};
  }
  std::optional<int64_t> most_tokens(const TextEncoder& encoder) const;
};

/// Checks the first row's columns; see check() of column-mapped data.
SourceDescription check(const SequenceClassificationDatasetConfig& config);
SourceDescription check(const GlueMrpcConfig& config);

/// Throws InputError where the class of the source's first row is none of the model's. Rows that
/// are not on this machine pass.
void check_first_class(const SourceOptions& source, const ClassifiedColumns& columns,
                       const ClassifierFacts& model);

/// Texts, or pairs of texts, each with its class: the label of the token at classified_place(), and
/// of no other.
class ClassifiedTextDataset final : public Dataset {
 public:
  /// `encoder` must outlive the dataset.
  template <typename Config>
  ClassifiedTextDataset(const Config& config, const TextEncoder& encoder, ClassifierFacts model)
      : ClassifiedTextDataset(config.source(), config.columns(), config.most_tokens(encoder),
                              encoder, std::move(model)) {}

  int64_t size() const override { return source_.size(); }
  Sample at(int64_t index) const override;
  std::string origin(int64_t row) const override { return source_.origin(row); }
  std::vector<DataFingerprint> files() const override { return source_.files(); }
  uint64_t order_checksum() const override { return source_.order_checksum(); }

 private:
  ClassifiedTextDataset(const SourceOptions& source, ClassifiedColumns columns,
                        std::optional<int64_t> most_tokens, const TextEncoder& encoder,
                        ClassifierFacts model);

  std::string text(const Json& row, const std::string& column, int64_t index) const;

  ClassifiedColumns columns_;
  std::optional<int64_t> most_tokens_;
  const TextEncoder& encoder_;
  std::optional<int64_t> pad_id_;
  ClassifierFacts model_;
  ClassTable classes_;
  RowSource source_;
};

}  // namespace automodel::datasets
