#include "datasets/texts/column_mapped.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "datasets/conversations/conversation.h"
#include "datasets/samples/answer_end.h"

namespace automodel::datasets {

namespace {

void validate(const ColumnMappedTextInstructionDatasetConfig& config) {
  const ColumnMapping& mapping = config.column_mapping;
  if (!mapping.answer) throw UserError("column_mapping must name the answer column");
  if (!mapping.question && !mapping.context) {
    throw UserError("column_mapping must name a question or a context column beside the answer");
  }
  config.format().validate();
}

std::vector<std::string> mapped_columns(const ColumnMapping& mapping) {
  std::vector<std::string> columns;
  for (const auto& column : {mapping.context, mapping.question, mapping.answer}) {
    if (column) columns.push_back(*column);
  }
  return columns;
}

/// Whether rows may do without a mapped column, and one behind the first has it.
bool is_in_later_rows(const std::string& column, const ColumnMapping& mapping,
                      const RowSource& source) {
  if (column == mapping.answer) return false;
  for (int64_t i = 1; i < source.size(); ++i) {
    if (source.row(i).find(column) != nullptr) return true;
  }
  return false;
}

}  // namespace

SourceOptions ColumnMappedTextInstructionDatasetConfig::source() const {
  SourceOptions options{path_or_dataset_id, split, name, limit_dataset_samples};
  options.text_columns = mapped_columns(column_mapping);
  return options;
}

std::vector<std::string> ColumnMappedTextInstructionDatasetConfig::columns_read() const {
  return mapped_columns(column_mapping);
}

FormatOptions ColumnMappedTextInstructionDatasetConfig::format() const {
  return {seq_length, padding, truncation, answer_only_loss_mask, unshifted};
}

SourceDescription check(const ColumnMappedTextInstructionDatasetConfig& config) {
  validate(config);
  SourceDescription description = describe_source(config.source());
  if (description.note) return description;
  for (const std::string& column : mapped_columns(config.column_mapping)) {
    const auto missing = missing_column(column, description.columns);
    if (!missing || is_in_later_rows(column, config.column_mapping, RowSource(config.source()))) {
      continue;
    }
    throw InputError(cat(description.files.front(), ": ", *missing));
  }
  return description;
}

ColumnMappedTextInstructionDataset::ColumnMappedTextInstructionDataset(
    ColumnMappedTextInstructionDatasetConfig config, const TextEncoder& encoder)
    : config_(std::move(config)),
      format_(config_.format()),
      encoder_(encoder),
      source_((validate(config_), config_.source())) {
  if (config_.use_hf_chat_template && encoder_.has_chat_template()) {
    chat_.emplace(encoder_, std::nullopt, ChatFormatOptions{.format = format_});
  }
  // A wrong mapping is an error now, not in the first batch.
  const Json row = source_.row(0);
  for (const std::string& column : mapped_columns(config_.column_mapping)) {
    const bool is_there =
        row.find(column) != nullptr || is_in_later_rows(column, config_.column_mapping, source_);
    if (!is_there) required_column(row, column, source_, 0);
  }
  format_row(0);
}

int64_t ColumnMappedTextInstructionDataset::RowRuns::end_of(int64_t row) const {
  const std::lock_guard lock(mutex_);
  const auto behind = ends_.upper_bound(row);
  return behind == ends_.begin() ? row : std::max(row, std::prev(behind)->second);
}

void ColumnMappedTextInstructionDataset::RowRuns::add(int64_t begin, int64_t end) {
  constexpr int64_t kShortest = 16;  // what is quicker looked at again than kept
  if (end - begin < kShortest) return;
  const std::lock_guard lock(mutex_);
  ends_.erase(ends_.lower_bound(begin), ends_.lower_bound(end));
  ends_.emplace(begin, end);
}

bool ColumnMappedTextInstructionDataset::has_question(int64_t index) const {
  try {
    const Json row = source_.row(index);
    const std::string* text = text_column(row, *config_.column_mapping.question, source_, index);
    return text != nullptr && !text->empty();
  } catch (const InputError&) {
    return true;  // a wrong row is an error when it is due
  }
}

std::optional<std::string> ColumnMappedTextInstructionDataset::find_lack_of_end() const {
  constexpr int64_t kNumRowsLookedAt = 20;
  const int64_t num_rows = std::min(size(), kNumRowsLookedAt);
  int64_t num_whole = 0;
  try {
    for (int64_t i = 0; i < num_rows; ++i) {
      const Sample sample = at(i);
      if (ends_with_special(sample.labels, encoder_)) return std::nullopt;
      num_whole += sample.num_cut == 0 ? 1 : 0;
    }
  } catch (const InputError&) {
    return std::nullopt;  // a wrong row is an error when it is due
  }
  if (num_whole == 0) return std::nullopt;
  const std::optional<int64_t> eos = encoder_.eos_token_id();
  return cat(source_.origin(0), ": none of the first ", num_rows,
             " answers ends with a special token, so the model will not learn to end its answers; ",
             chat_ ? std::string("the chat template writes none behind them")
             : eos ? cat("tokenizer: {add_eos_token: true} of the dataset writes ",
                         encoder_.token_text(*eos), " behind them")
                   : std::string("the tokenizer has no eos token"));
}

std::vector<std::string> ColumnMappedTextInstructionDataset::findings() const {
  at(0);  // rows of which none has a label are an error now, not in the first batch
  std::vector<std::string> findings;
  for (auto& finding : {find_empty_questions(), find_lack_of_end()}) {
    if (finding) findings.push_back(*finding);
  }
  return findings;
}

std::optional<std::string> ColumnMappedTextInstructionDataset::find_empty_questions() const {
  const std::optional<std::string>& column = config_.column_mapping.question;
  if (!column) return std::nullopt;
  constexpr int64_t kNumRowsLookedAt = 100;
  const int64_t num_rows = std::min(size(), kNumRowsLookedAt);
  int64_t num_empty = 0;
  std::string first;
  for (int64_t i = 0; i < num_rows; ++i) {
    if (has_question(i)) continue;
    if (++num_empty == 1) first = source_.origin(i);
  }
  if (num_empty == 0) return std::nullopt;
  return cat(first, ": column '", *column, "' is empty here, and in ", num_empty, " of the first ",
             num_rows, " rows; answers to nothing are trained on");
}

Sample ColumnMappedTextInstructionDataset::at(int64_t index) const {
  const int64_t num_rows = size();
  for (int64_t i = 0; i < num_rows;) {
    const int64_t row = (index + i) % num_rows;
    if (const int64_t end = unlabelled_.end_of(row); end > row) {
      i += end - row;
      continue;
    }
    Sample sample = format_row(row);
    if (sample.has_label()) {
      unlabelled_.add(index, std::min(index + i, num_rows));
      return sample;
    }
    ++i;
  }
  throw NoLabelsError(
      cat("no row of ", join(config_.path_or_dataset_id, ", "),
          " has a token that counts in the loss: answers are empty, or of a single token that the "
          "prompt's last space is a part of",
          config_.seq_length ? cat(", or seq_length ", *config_.seq_length, " cuts all of them off")
                             : ""));
}

Sample ColumnMappedTextInstructionDataset::format_chat(const Json& row, int64_t index,
                                                       const std::string& answer) const {
  const auto text = [&](const std::optional<std::string>& column) {
    const std::string* value = column ? text_column(row, *column, source_, index) : nullptr;
    return value == nullptr ? std::string() : *value;
  };
  const ColumnMapping& mapping = config_.column_mapping;
  const Json messages(Json::Array{make_message("system", text(mapping.context)),
                                  make_message("user", text(mapping.question)),
                                  make_message("assistant", answer)});
  return chat_->format(messages, Json(), source_.origin(index));
}

Sample ColumnMappedTextInstructionDataset::format_row(int64_t index) const {
  const Json row = source_.row(index);
  std::string prompt;
  for (const auto& column : {config_.column_mapping.context, config_.column_mapping.question}) {
    if (!column) continue;
    if (const std::string* text = text_column(row, *column, source_, index)) prompt += *text + " ";
  }
  if (prompt.size() <= 1 && !chat_) {  // a chat template writes an empty message too
    const std::optional<std::string>& question = config_.column_mapping.question;
    if (question) required_column(row, *question, source_, index);
    throw InputError(cat(source_.origin(index), ": question and context are empty"));
  }
  const std::string& answer_column = *config_.column_mapping.answer;
  required_column(row, answer_column, source_, index);
  const std::string* answer = text_column(row, answer_column, source_, index);
  if (answer == nullptr) {
    throw InputError(cat(source_.origin(index), ": column '", answer_column, "' is null"));
  }
  Sample sample = chat_ ? format_chat(row, index, *answer)
                        : format_prompt_completion(encoder_, prompt, *answer, format_);
  sample.row = index;
  return sample;
}

}  // namespace automodel::datasets
