#include "datasets/conversations/chat_dataset.h"

#include <algorithm>
#include <utility>

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
      source_((config.format().format.validate(), config.source())),
      formatter_(encoder, config.chat_template, config.format()) {}

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

/// What the first rows show of a dataset.
struct ChatDataset::FirstRows {
  int64_t num_rows = 0;
  int64_t num_without_label = 0;
  int64_t num_cut_off = 0;  ///< of them those from which truncation took their answers
  std::optional<std::string> idle_system;
  std::optional<std::string> note;      ///< of the first conversation that has one
  std::optional<std::string> left_out;  ///< of the first conversation that is not written whole
  bool is_trained = false;              ///< something of an answer counts, before truncation
  bool ends = false;                    ///< special tokens are part of it
  bool is_eos_written = false;
};

ChatDataset::FirstRows ChatDataset::look_at_first_rows() const {
  FirstRows seen{.num_rows = std::min(size(), kNumRowsLookedAt)};
  const std::optional<int64_t> eos = encoder_.eos_token_id();
  for (int64_t i = 0; i < seen.num_rows; ++i) {
    const Json row = source_.row(i);
    const std::string origin = source_.origin(i);
    const Json messages = read_messages(row, origin);
    if (i == 0) seen.idle_system = find_idle_system(row, messages);
    const Json tools = read_tools(row, origin);
    ChatTokens tokens = formatter_.tokenize(messages, tools, origin);
    if (!seen.note) seen.note = tokens.note;
    if (!seen.left_out) {
      const std::string keys = formatter_.left_out(messages, tools, origin);
      if (!keys.empty()) {
        seen.left_out = cat(origin, ": the chat template does not write ", keys,
                            "; they are left out, and the assistant learns turns without them "
                            "(chat_template names another template)");
      }
    }
    for (size_t at = 0; at < tokens.ids.size(); ++at) {
      const bool is_trained = tokens.is_assistant[at] && !tokens.is_left_out[at];
      seen.is_trained = seen.is_trained || is_trained;
      // Models end their turns with special tokens of their own, not only with eos.
      seen.ends = seen.ends || (is_trained && encoder_.is_special(tokens.ids[at]));
      seen.is_eos_written = seen.is_eos_written || eos == tokens.ids[at];
    }
    const Sample sample = formatter_.format(std::move(tokens));
    if (sample.has_label()) continue;
    ++seen.num_without_label;
    if (sample.num_cut > 0 && !has_only_untrained_answers(messages)) ++seen.num_cut_off;
  }
  return seen;
}

/// Says that rows have no label. Throws NoLabelsError if these are all rows.
std::optional<std::string> ChatDataset::find_lack_of_labels(const FirstRows& seen) const {
  const bool is_all = seen.num_rows == size();
  const std::string rows = cat(is_all ? "" : "first ", seen.num_rows, " conversations");
  const std::string length = cat("seq_length", seq_length_ ? cat(" ", *seq_length_) : "");
  if (seen.num_without_label < seen.num_rows) {
    if (seen.num_cut_off == 0) return std::nullopt;
    return cat(source_.origin(0), ": ", length, " cuts all of the assistant's turns off in ",
               seen.num_cut_off, " of the ", rows, ", which then train nothing");
  }
  const std::string text =
      cat("none of the ", rows, " from ", source_.origin(0),
          " on has a token that counts in the loss: ",
          seen.num_cut_off > 0 ? cat(length, " cuts all of the assistant's turns off")
                               : "all of the assistant's turns are left out of it");
  if (is_all) throw NoLabelsError(text);
  return text;
}

/// Says that the model would never end its turn, where anything of an answer is trained.
std::optional<std::string> ChatDataset::find_lack_of_end(const FirstRows& seen) const {
  if (seen.ends || !seen.is_trained) return std::nullopt;
  const std::optional<int64_t> eos = encoder_.eos_token_id();
  const std::string token = eos ? encoder_.token_text(*eos) : std::string("none");
  return cat(source_.origin(0), ": in none of the first ", seen.num_rows,
             " conversations the assistant is trained to write a special token, so the model will "
             "not learn to end its turn; ",
             seen.is_eos_written ? "the template writes the eos token ("
                                 : "the template has no eos token (",
             token, seen.is_eos_written ? ") outside of what counts in the loss" : ")");
}

std::vector<std::string> ChatDataset::findings() const {
  const FirstRows seen = look_at_first_rows();
  std::vector<std::string> findings;
  for (const auto& finding : {source_.invalid_lines(), find_lack_of_labels(seen), seen.idle_system,
                              seen.note, seen.left_out, find_lack_of_end(seen)}) {
    if (finding) findings.push_back(*finding);
  }
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
