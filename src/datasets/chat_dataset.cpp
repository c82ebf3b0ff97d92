#include "datasets/chat_dataset.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "datasets/conversation.h"

namespace automodel::datasets {

namespace {

constexpr int64_t kNumRowsLookedAt = 32;

void refuse(bool is_set, const char* key, const char* instead) {
  if (!is_set) return;
  throw UnsupportedError(cat(key, ": this is not in this version; ", instead));
}

void validate(const ChatDatasetConfig& config) {
  config.format().format.validate();
  refuse(config.shuffle_seed.has_value(), "shuffle_seed",
         "the loader shuffles rows; shuffle the file to have a slice of shuffled rows");
  refuse(config.mask_reasoning_content, "mask_reasoning_content",
         "a template's {% generation %} blocks can leave reasoning out");
  refuse(config.mask_generation_prompt, "mask_generation_prompt",
         "a template's {% generation %} blocks can leave the header out");
  refuse(config.skip_invalid_samples, "skip_invalid_samples", "remove the lines that errors name");
}

}  // namespace

SourceOptions ChatDatasetConfig::source() const {
  return {path_or_dataset_id, split.value_or("train"), name, std::nullopt};
}

ChatFormatOptions ChatDatasetConfig::format() const {
  return {{seq_length, padding, truncation, true, unshifted},
          mask_history,
          allow_special_tokens_in_text};
}

SourceDescription check(const ChatDatasetConfig& config) {
  validate(config);
  SourceDescription description = describe_source(config.source());
  if (description.note) return description;
  const auto has = [&](const char* column) {
    return std::ranges::find(description.columns, column) != description.columns.end();
  };
  if (!has("messages") && !has("conversations")) {
    throw InputError(cat(
        description.files.front(),
        ": no column 'messages' or 'conversations'; columns: ", join(description.columns, ", ")));
  }
  return description;
}

ChatDataset::ChatDataset(const ChatDatasetConfig& config, const TextEncoder& encoder)
    : encoder_(encoder),
      source_((validate(config), config.source())),
      formatter_(encoder, config.chat_template, config.format()),
      finding_(find_end_of_turn()) {}

std::optional<std::string> ChatDataset::find_end_of_turn() const {
  const std::optional<int64_t> eos = encoder_.eos_token_id();
  const int64_t num_rows = std::min(size(), kNumRowsLookedAt);
  bool is_written = false;
  for (int64_t i = 0; i < num_rows; ++i) {
    const Json row = source_.row(i);
    const std::string origin = source_.origin(i);
    const ChatTokens tokens =
        formatter_.tokenize(read_messages(row, origin), read_tools(row, origin), origin);
    for (size_t at = 0; at < tokens.ids.size(); ++at) {
      // Models end their turns with special tokens of their own, not only with eos.
      if (tokens.is_assistant[at] && encoder_.is_special(tokens.ids[at])) return std::nullopt;
      is_written = is_written || eos == tokens.ids[at];
    }
  }
  const std::string token = eos ? encoder_.token_text(*eos) : std::string("none");
  return cat(source_.origin(0), ": in none of the first ", num_rows,
             " conversations the assistant is trained to write a special token, so the model will "
             "not learn to end its turn; ",
             is_written ? "the template writes the eos token (" : "the template has no eos token (",
             token, is_written ? ") outside of what counts in the loss" : ")");
}

Sample ChatDataset::format_row(int64_t index) const {
  const Json row = source_.row(index);
  const std::string origin = source_.origin(index);
  Sample sample = formatter_.format(read_messages(row, origin), read_tools(row, origin), origin);
  sample.row = index;
  return sample;
}

Sample ChatDataset::at(int64_t index) const {
  const int64_t num_rows = size();
  for (int64_t i = 0; i < num_rows; ++i) {
    Sample sample = format_row((index + i) % num_rows);
    if (sample.has_label()) return sample;
  }
  throw InputError(cat(source_.origin(0),
                       ": no conversation has a token that counts in the loss: seq_length cuts all "
                       "of the assistant's turns off"));
}

}  // namespace automodel::datasets
