#include "datasets/conversations/chat_dataset.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "datasets/conversations/conversation.h"

namespace automodel::datasets {

namespace {

constexpr int64_t kNumRowsLookedAt = 32;

/// Whether the first row of the files is among those that the split takes: its slice begins there,
/// and nothing has shuffled the rows before.
bool takes_first_row(const ChatDatasetConfig& config) {
  const std::string text = config.split.value_or("train");
  const Split first = Split::parse(text.substr(0, text.find('+')));
  const bool is_sliced = first.from || first.to;
  return !is_sliced || (!first.from && !config.shuffle_seed);
}

}  // namespace

SourceOptions ChatDatasetConfig::source() const {
  SourceOptions options{path_or_dataset_id, split.value_or("train"), name, std::nullopt};
  options.shuffle_seed = shuffle_seed;
  options.skips_invalid = skip_invalid_samples;
  return options;
}

ChatFormatOptions ChatDatasetConfig::format() const {
  return {.format = {seq_length, padding, truncation, true, unshifted},
          .mask_history = mask_history,
          .allows_special_tokens = allow_special_tokens_in_text,
          .mask_reasoning_content = mask_reasoning_content,
          .mask_generation_prompt = mask_generation_prompt};
}

SourceDescription check(const ChatDatasetConfig& config) {
  config.format().format.validate();
  check_template(config.chat_template);
  SourceDescription description = describe_source(config.source());
  if (description.note) return description;
  check_conversation_columns(description);
  if (takes_first_row(config)) {
    const std::string origin = cat(description.first_path, ", first row");
    check_for_answers(read_messages(description.first_row, origin), origin);
    read_tools(description.first_row, origin);
  }
  return description;
}

ChatDataset::ChatDataset(const ChatDatasetConfig& config, const TextEncoder& encoder)
    : encoder_(encoder),
      seq_length_(config.seq_length),
      truncates_(config.truncation != Truncation::kNone),
      source_((config.format().format.validate(), config.source())),
      formatter_(encoder, config.chat_template, config.format()) {}

void ChatDataset::look_for_labels(std::vector<std::string>& findings) const {
  const int64_t num_rows = std::min(size(), kNumRowsLookedAt);
  int64_t num_without_label = 0;
  int64_t num_cut_off = 0;
  for (int64_t i = 0; i < num_rows; ++i) {
    const Sample sample = at(i);
    if (sample.has_label()) {
      if (!truncates_) return;
      continue;
    }
    ++num_without_label;
    const bool is_cut = sample.num_cut > 0 && !has_only_untrained_answers(
                                                  read_messages(source_.row(i), source_.origin(i)));
    if (is_cut) ++num_cut_off;
  }
  const bool is_all = num_rows == size();
  const std::string rows = cat(is_all ? "" : "first ", num_rows, " conversations");
  const std::string length = cat("seq_length", seq_length_ ? cat(" ", *seq_length_) : "");
  if (num_without_label < num_rows) {
    if (num_cut_off == 0) return;
    findings.push_back(cat(source_.origin(0), ": ", length,
                           " cuts all of the assistant's turns off in ", num_cut_off, " of the ",
                           rows, ", which then train nothing"));
    return;
  }
  const std::string text =
      cat("none of the ", rows, " from ", source_.origin(0),
          " on has a token that counts in the loss: ",
          num_cut_off > 0 ? cat(length, " cuts all of the assistant's turns off")
                          : "all of the assistant's turns are left out of it");
  if (is_all) throw NoLabelsError(text);
  findings.push_back(text);
}

/// A prompt that some files keep in a column of its own, which is no message.
std::optional<std::string> ChatDataset::find_idle_system(const Json& row,
                                                         const Json& messages) const {
  if (messages.as_array().front().get("role", "") == "system") return std::nullopt;
  for (const char* column : {"system", "system_prompt"}) {
    const Json* const text = row.find(column);
    if (text == nullptr || !text->is_string() || text->as_string().empty()) continue;
    return cat(source_.origin(0), ": the column '", column,
               "' is not read; a system prompt is the first of the messages, with the role system");
  }
  return std::nullopt;
}

std::vector<std::string> ChatDataset::findings() const {
  std::vector<std::string> findings;
  if (source_.invalid_lines()) findings.push_back(*source_.invalid_lines());
  look_for_labels(findings);
  const std::optional<int64_t> eos = encoder_.eos_token_id();
  const int64_t num_rows = std::min(size(), kNumRowsLookedAt);
  std::optional<std::string> note;
  bool ends = false;
  bool is_written = false;
  bool is_trained = false;
  for (int64_t i = 0; i < num_rows && !(ends && note); ++i) {
    const Json row = source_.row(i);
    const std::string origin = source_.origin(i);
    const Json messages = read_messages(row, origin);
    if (i == 0) {
      if (auto idle = find_idle_system(row, messages)) findings.push_back(std::move(*idle));
    }
    const ChatTokens tokens = formatter_.tokenize(messages, read_tools(row, origin), origin);
    if (!note) note = tokens.note;
    for (size_t at = 0; at < tokens.ids.size(); ++at) {
      // Models end their turns with special tokens of their own, not only with eos.
      ends = ends || (tokens.is_assistant[at] && !tokens.is_left_out[at] &&
                      encoder_.is_special(tokens.ids[at]));
      is_written = is_written || eos == tokens.ids[at];
      is_trained = is_trained || (tokens.is_assistant[at] && !tokens.is_left_out[at]);
    }
  }
  if (note) findings.push_back(*note);
  if (ends || !is_trained) return findings;
  const std::string token = eos ? encoder_.token_text(*eos) : std::string("none");
  findings.push_back(
      cat(source_.origin(0), ": in none of the first ", num_rows,
          " conversations the assistant is trained to write a special token, so the model will "
          "not learn to end its turn; ",
          is_written ? "the template writes the eos token (" : "the template has no eos token (",
          token, is_written ? ") outside of what counts in the loss" : ")"));
  return findings;
}

Sample ChatDataset::at(int64_t index) const {
  const Json row = source_.row(index);
  const std::string origin = source_.origin(index);
  Sample sample = formatter_.format(read_messages(row, origin), read_tools(row, origin), origin);
  sample.row = index;
  return sample;
}

}  // namespace automodel::datasets
