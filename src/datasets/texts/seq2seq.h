#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/field.h"
#include "datasets/rows/row_source.h"
#include "datasets/samples/dataset.h"
#include "datasets/samples/format.h"
#include "datasets/samples/most_tokens.h"
#include "datasets/samples/text_encoder.h"

namespace automodel::datasets {

/// A text with a row's columns in it, as Python's str.format writes it: "question: {question}". {{
/// and }} are braces.
class RowTemplate final {
 public:
  /// Throws UserError for braces without a partner, and for what is not a column's name alone
  /// (format specs, conversions, attributes, indices).
  explicit RowTemplate(const std::string& text);

  const std::vector<std::string>& columns() const { return columns_; }

  /// `value_of(column)` gives a column's text.
  template <typename ValueOf>
  std::string filled(ValueOf&& value_of) const {
    std::string out = texts_.front();
    for (size_t i = 0; i < columns_.size(); ++i)
      out.append(value_of(columns_[i])).append(texts_[i + 1]);
    return out;
  }

 private:
  std::vector<std::string> texts_;  ///< before, between and behind the columns
  std::vector<std::string> columns_;
};

/// Options of make_seq2seq_dataset; names and defaults are upstream's.
struct Seq2SeqConfig {
  std::optional<int64_t> seq_length = std::nullopt;
  std::optional<int64_t> limit_dataset_samples = std::nullopt;
  std::string split = "train";
  std::string dataset_name = "rajpurkar/squad";
  std::optional<std::string> source_template = "question: {question}  context: {context}";
  std::string source_key = "question";
  std::string target_key = "answers";
  std::optional<int64_t> decoder_start_token_id = std::nullopt;
  Truncation truncation = Truncation::kToLength;

  static constexpr auto fields() {
    using Config = Seq2SeqConfig;
    return std::tuple{
        field("seq_length", &Config::seq_length,
              "tokens to cut sources and targets to, special ones included; absent: none are cut")
            .at_least(1)
            .at_most(kMostTokens),
        field("limit_dataset_samples", &Config::limit_dataset_samples,
              "use only the first rows, unless split has a slice")
            .at_least(1),
        field("split", &Config::split,
              "split, with an optional slice such as train[:90%]; a sum of them: train[:10%]+test"),
        field("dataset_name", &Config::dataset_name,
              "file or folder of rows, or data set of the hub"),
        field("source_template", &Config::source_template,
              "the source's text, with columns in braces; null: the column source_key"),
        field("source_key", &Config::source_key,
              "column with the source's text where source_template is null"),
        field("target_key", &Config::target_key,
              "column with the target: a text, or SQuAD's answers, of which the first is taken"),
        field("decoder_start_token_id", &Config::decoder_start_token_id,
              "token with which targets begin in the decoder; absent: the pad token, as T5 has it")
            .at_least(0),
        field("truncation", &Config::truncation,
              "false leaves longer texts than seq_length whole")};
  }

  SourceOptions source() const;
  std::vector<std::string> columns_read() const;
};

/// Checks the template and the first row's columns; see check() of column-mapped data.
SourceDescription check(const Seq2SeqConfig& config);

/// Sources and targets for an encoder and a decoder. A sample's source_ids are the source's tokens,
/// its labels the target's, and its input_ids the same one place later, behind the decoder's first
/// token. A target without tokens has no label.
class Seq2SeqDataset final : public Dataset {
 public:
  /// `encoder` must outlive the dataset.
  Seq2SeqDataset(const Seq2SeqConfig& config, const TextEncoder& encoder);

  int64_t size() const override { return source_.size(); }
  Sample at(int64_t index) const override;
  std::string origin(int64_t row) const override { return source_.origin(row); }
  std::vector<DataFingerprint> files() const override { return source_.files(); }
  uint64_t order_checksum() const override { return source_.order_checksum(); }

 private:
  std::string source_text(const Json& row, int64_t index) const;
  std::string target_text(const Json& row, int64_t index) const;
  /// Adds the number of tokens that were cut off.
  std::vector<int64_t> tokens_of(const std::string& text, int64_t index, int64_t& num_cut) const;

  std::optional<RowTemplate> template_;
  std::string source_key_;
  std::string target_key_;
  std::optional<int64_t> most_tokens_;  ///< of a source or target
  const TextEncoder& encoder_;
  int64_t pad_id_;
  int64_t start_id_;
  RowSource source_;
};

}  // namespace automodel::datasets
