#include "datasets/conversations/chat_dataset.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "datasets/conversations/conversation.h"

namespace automodel::datasets {

namespace {

constexpr int64_t kNumRowsLookedAt = 32;

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
  if (!description.note) check_conversation_columns(description);
  return description;
}

ChatDataset::ChatDataset(const ChatDatasetConfig& config, const TextEncoder& encoder)
    : encoder_(encoder),
      seq_length_(config.seq_length),
      source_((config.format().format.validate(), config.source())),
      formatter_(encoder, config.chat_template, config.format()) {}

void ChatDataset::look_for_labels(std::vector<std::string>& findings) const {
  const int64_t num_rows = std::min(size(), kNumRowsLookedAt);
  for (int64_t i = 0; i < num_rows; ++i) {
    if (at(i).has_label()) return;
  }
  const bool is_all = num_rows == size();
  const std::string text =
      cat("none of the ", is_all ? "" : "first ", num_rows, " conversations from ",
          source_.origin(0), " on has a token that counts in the loss: seq_length",
          seq_length_ ? cat(" ", *seq_length_) : "", " cuts all of the assistant's turns off");
  if (is_all) throw NoLabelsError(text);
  findings.push_back(text);
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
  for (int64_t i = 0; i < num_rows && !(ends && note); ++i) {
    const Json row = source_.row(i);
    const std::string origin = source_.origin(i);
    const ChatTokens tokens =
        formatter_.tokenize(read_messages(row, origin), read_tools(row, origin), origin);
    if (!note) note = tokens.note;
    for (size_t at = 0; at < tokens.ids.size(); ++at) {
      // Models end their turns with special tokens of their own, not only with eos.
      ends = ends || (tokens.is_assistant[at] && !tokens.is_left_out[at] &&
                      encoder_.is_special(tokens.ids[at]));
      is_written = is_written || eos == tokens.ids[at];
    }
  }
  if (note) findings.push_back(*note);
  if (ends) return findings;
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
