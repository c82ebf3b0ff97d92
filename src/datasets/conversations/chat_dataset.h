#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "datasets/conversations/chat_format.h"
#include "datasets/rows/row_source.h"
#include "datasets/samples/most_tokens.h"

namespace automodel::datasets {

/// Options of ChatDataset; names and defaults are upstream's, except allow_special_tokens_in_text.
struct ChatDatasetConfig {
  std::vector<std::string> path_or_dataset_id;
  std::optional<std::string> split = std::nullopt;
  std::optional<std::string> name = std::nullopt;
  std::optional<int64_t> seq_length = std::nullopt;
  Padding padding = Padding::kNone;
  Truncation truncation = Truncation::kNone;
  std::optional<std::string> start_of_turn_token = std::nullopt;
  std::optional<std::string> chat_template = std::nullopt;
  std::optional<int64_t> shuffle_seed = std::nullopt;
  bool mask_reasoning_content = false;
  bool mask_generation_prompt = false;
  bool mask_history = false;
  bool unshifted = false;
  bool skip_invalid_samples = false;
  bool allow_special_tokens_in_text = false;

  static constexpr auto fields() {
    using Config = ChatDatasetConfig;
    return std::tuple{
        field("path_or_dataset_id", &Config::path_or_dataset_id,
              "JSON or JSONL file with messages or conversations, folder of such files, or a list")
            .required()
            .or_one(),
        field("split", &Config::split, "split, with an optional slice such as train[1024:]"),
        field("name", &Config::name, "subset: a subfolder of the dataset's folder"),
        field("seq_length", &Config::seq_length, "tokens to pad or cut samples to")
            .at_least(2)
            .at_most(kMostTokens),
        field("padding", &Config::padding, "max_length pads every sample to seq_length"),
        field("truncation", &Config::truncation, "true cuts samples to seq_length"),
        field("start_of_turn_token", &Config::start_of_turn_token, "not used")
            .without_effect("upstream ignores it too"),
        field("chat_template", &Config::chat_template,
              "template, or a file with one, in place of the tokenizer's own"),
        field(
            "shuffle_seed", &Config::shuffle_seed,
            "mix the rows by this seed, once: before a slice by row numbers, after others and sums")
            .at_least(0),
        field("mask_reasoning_content", &Config::mask_reasoning_content,
              "no loss on reasoning_content"),
        field("mask_generation_prompt", &Config::mask_generation_prompt,
              "no loss on what the template's generation prompt writes"),
        field("mask_history", &Config::mask_history, "loss on the assistant's last turn only"),
        field("unshifted", &Config::unshifted,
              "samples for diffusion: every token with whether it counts, instead of shifted "
              "labels"),
        field("skip_invalid_samples", &Config::skip_invalid_samples,
              "leave out lines of JSON lines that are not JSON; reads every line at the start"),
        field("allow_special_tokens_in_text", &Config::allow_special_tokens_in_text,
              "special tokens that messages spell out are read as such instead of refused")};
  }

  SourceOptions source() const;
  ChatFormatOptions format() const;
  static std::vector<std::string> columns_read() { return {"messages", "conversations", "tools"}; }
  TemplateUse template_use() const { return use_of_template(chat_template, true); }
};

/// Checks the options, the first row's columns and, where the split takes it, its messages. Throws
/// UserError, InputError, UnsupportedError; for a hub id the description has a note.
SourceDescription check(const ChatDatasetConfig& config);

/// Conversations: rows with OpenAI's `messages` or ShareGPT's `conversations`, and `tools`, written
/// with the tokenizer's chat template; the loss counts what the assistant writes.
class ChatDataset final : public Dataset {
 public:
  /// `encoder` must outlive the dataset. Reads the first rows; throws InputError for a wrong one.
  ChatDataset(const ChatDatasetConfig& config, const TextEncoder& encoder);

  int64_t size() const override { return source_.size(); }
  /// A conversation of which truncation leaves no label trains nothing.
  Sample at(int64_t index) const override;
  std::string origin(int64_t row) const override { return source_.origin(row); }
  std::vector<DataFingerprint> files() const override { return source_.files(); }
  uint64_t order_checksum() const override { return source_.order_checksum(); }

  /// Warnings for a run: lines that are left out; a system prompt that is no message; in the first
  /// rows, parts that an option excludes from the loss but that cannot be found; rows of which
  /// truncation leaves no label; that none has one; and that the assistant's text has no special
  /// token, so that the trained model would never end its turn. Reads the first
  /// rows; throws InputError for a wrong one, NoLabelsError if these are all and have no label.
  std::vector<std::string> findings() const;

 private:
  struct FirstRows;
  FirstRows look_at_first_rows() const;
  std::optional<std::string> find_idle_system(const Json& row, const Json& messages) const;
  std::optional<std::string> find_lack_of_labels(const FirstRows& seen) const;
  std::optional<std::string> find_lack_of_end(const FirstRows& seen) const;

  const TextEncoder& encoder_;
  std::optional<int64_t> seq_length_;
  RowSource source_;
  ChatFormatter formatter_;
};

}  // namespace automodel::datasets
