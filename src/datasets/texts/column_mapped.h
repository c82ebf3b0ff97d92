#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "datasets/conversations/chat_format.h"
#include "datasets/rows/row_source.h"
#include "datasets/samples/format.h"
#include "datasets/samples/most_tokens.h"

namespace automodel::datasets {

/// The columns for each part of a sample: the answer, and at least one of the others.
struct ColumnMapping {
  std::optional<std::string> context = std::nullopt;
  std::optional<std::string> question = std::nullopt;
  std::optional<std::string> answer = std::nullopt;

  static constexpr auto fields() {
    return std::tuple{
        field("context", &ColumnMapping::context, "column with what the question is about"),
        field("question", &ColumnMapping::question, "column with the question"),
        field("answer", &ColumnMapping::answer, "column with the answer (required)")};
  }
};

/// Options of ColumnMappedTextInstructionDataset; names and defaults are upstream's.
struct ColumnMappedTextInstructionDatasetConfig {
  std::vector<std::string> path_or_dataset_id;
  ColumnMapping column_mapping;
  std::optional<std::string> split = "train";
  std::optional<std::string> name = std::nullopt;
  bool answer_only_loss_mask = true;
  std::optional<int64_t> seq_length = std::nullopt;
  Padding padding = Padding::kNone;
  Truncation truncation = Truncation::kNone;
  std::optional<int64_t> limit_dataset_samples = std::nullopt;
  bool use_hf_chat_template = false;
  bool unshifted = false;

  static constexpr auto fields() {
    using Config = ColumnMappedTextInstructionDatasetConfig;
    return std::tuple{
        field("path_or_dataset_id", &Config::path_or_dataset_id,
              "file of rows (JSON, Parquet, Arrow, CSV), folder of them, data set of the hub, or a "
              "list of them")
            .required()
            .or_one(),
        field("column_mapping", &Config::column_mapping,
              "which column is context, question, answer")
            .required(),
        field("split", &Config::split,
              "split, with an optional slice such as train[:90%]; a sum of them: train[:10%]+test"),
        field("name", &Config::name, "configuration of the data set, or a subfolder of its folder"),
        field("answer_only_loss_mask", &Config::answer_only_loss_mask,
              "loss on the answer's tokens only; false: on all tokens"),
        field("seq_length", &Config::seq_length, "tokens to pad or cut samples to")
            .at_least(2)
            .at_most(kMostTokens),
        field("padding", &Config::padding, "max_length pads every sample to seq_length"),
        field("truncation", &Config::truncation, "true cuts samples to seq_length"),
        field("limit_dataset_samples", &Config::limit_dataset_samples, "use only the first rows")
            .at_least(1),
        field("use_hf_chat_template", &Config::use_hf_chat_template,
              "write samples with the tokenizer's chat template when it has one"),
        field("unshifted", &Config::unshifted,
              "samples for diffusion: every token with whether it counts, instead of shifted "
              "labels")};
  }

  SourceOptions source() const;
  FormatOptions format() const;
  std::vector<std::string> columns_read() const;
  TemplateUse template_use() const {
    return use_hf_chat_template ? TemplateUse::kTokenizersIfAny : TemplateUse::kNone;
  }
};

/// Checks the options, reading at most the first row: mapping, files, columns. Throws UserError,
/// InputError, UnsupportedError; for a hub id the description has a note.
SourceDescription check(const ColumnMappedTextInstructionDatasetConfig& config);

/// Question and answer rows with any column names. The text is context and question, each followed
/// by a space, and the answer; format_prompt_completion describes tokens and labels. As upstream, a
/// row without any label (e.g. after truncation) is replaced by the next one.
class ColumnMappedTextInstructionDataset final : public Dataset {
 public:
  /// `encoder` must outlive the dataset. Throws as check() does. With use_hf_chat_template and a
  /// tokenizer that has a chat template, context, question and answer are the messages of system,
  /// user and assistant.
  ColumnMappedTextInstructionDataset(ColumnMappedTextInstructionDatasetConfig config,
                                     const TextEncoder& encoder);

  int64_t size() const override { return source_.size(); }
  Sample at(int64_t index) const override;
  std::string origin(int64_t row) const override { return source_.origin(row); }
  std::vector<DataFingerprint> files() const override { return source_.files(); }
  uint64_t order_checksum() const override { return source_.order_checksum(); }
  /// What a user should know about the rows, by the first ones. Throws InputError for a wrong one,
  /// NoLabelsError if no row has a label.
  std::vector<std::string> findings() const;

 private:
  std::optional<std::string> find_empty_questions() const;
  /// Says that the model would never end its answers.
  std::optional<std::string> find_lack_of_end() const;
  /// Long runs of rows without a label, so that each is looked at a few times and not once from
  /// every row in it. May be used by several threads at once.
  class RowRuns final {
   public:
    /// Behind the known run that a row is in; the row itself where it is in none.
    int64_t end_of(int64_t row) const;
    void add(int64_t begin, int64_t end);

   private:
    mutable std::mutex mutex_;
    std::map<int64_t, int64_t> ends_;  // by the runs' first rows
  };

  Sample format_row(int64_t row) const;
  /// Whether a row's question is a text that is not empty.
  bool has_question(int64_t index) const;
  Sample format_chat(const Json& row, int64_t index, const std::string& answer) const;

  ColumnMappedTextInstructionDatasetConfig config_;
  FormatOptions format_;
  const TextEncoder& encoder_;
  RowSource source_;
  std::optional<ChatFormatter> chat_;
  mutable RowRuns unlabelled_;
};

}  // namespace automodel::datasets
