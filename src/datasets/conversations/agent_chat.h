#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "datasets/conversations/agent_trace.h"
#include "datasets/conversations/chat_format.h"
#include "datasets/rows/row_source.h"
#include "datasets/samples/most_tokens.h"

namespace automodel::datasets {

/// Options of make_agent_chat_dataset; names and defaults are upstream's.
struct AgentChatConfig {
  std::optional<std::string> dataset_name = std::nullopt;
  std::vector<std::string> path;
  std::string split = "train";
  std::optional<std::string> revision = std::nullopt;
  bool filter_no_assistant = false;
  bool filter_overlong = false;
  bool trim_incomplete_last_turn = false;
  std::optional<std::string> chat_template = std::nullopt;
  std::optional<int64_t> seq_length = std::nullopt;
  std::optional<int64_t> limit_dataset_samples = std::nullopt;
  Padding padding = Padding::kNone;
  Truncation truncation = Truncation::kNone;
  bool mask_reasoning_content = false;
  bool mask_generation_prompt = false;
  bool train_on_last_turn_only = false;
  bool drop_history_reasoning_content = false;
  bool truncate_history = false;

  static constexpr auto fields() {
    using Config = AgentChatConfig;
    return std::tuple{
        field("dataset_name", &Config::dataset_name,
              "data set of the hub, or a folder of rows; this or path"),
        field("path", &Config::path, "file of rows, or a list of them; this or dataset_name")
            .or_one(),
        field("split", &Config::split, "split of dataset_name, with an optional slice"),
        field("revision", &Config::revision, "revision of dataset_name, e.g. refs/convert/parquet"),
        field("filter_no_assistant", &Config::filter_no_assistant,
              "leave out rows without a message of the assistant"),
        field("filter_overlong", &Config::filter_overlong,
              "leave out rows of more than seq_length tokens, after truncate_history"),
        field("trim_incomplete_last_turn", &Config::trim_incomplete_last_turn,
              "drop what follows the assistant's last message"),
        field("chat_template", &Config::chat_template,
              "template, or a file with one, in place of the tokenizer's own"),
        field("seq_length", &Config::seq_length, "tokens to pad or cut samples to")
            .at_least(2)
            .at_most(kMostTokens),
        field("limit_dataset_samples", &Config::limit_dataset_samples,
              "use only the first rows, unless split has a slice")
            .at_least(1),
        field("padding", &Config::padding, "max_length pads every sample to seq_length"),
        field("truncation", &Config::truncation, "true cuts samples to seq_length"),
        field("mask_reasoning_content", &Config::mask_reasoning_content,
              "no loss on reasoning_content"),
        field("mask_generation_prompt", &Config::mask_generation_prompt,
              "no loss on what the template's generation prompt writes"),
        field("train_on_last_turn_only", &Config::train_on_last_turn_only,
              "loss on the assistant's last turn only"),
        field("drop_history_reasoning_content", &Config::drop_history_reasoning_content,
              "reasoning_content stays in the assistant's last turn only"),
        field("truncate_history", &Config::truncate_history,
              "drop the oldest exchanges until the conversation fits seq_length")};
  }

  SourceOptions source() const;
  ChatFormatOptions format() const;
  static std::vector<std::string> columns_read() {
    return {"messages", "conversations", "tools", "id"};
  }
  TemplateUse template_use() const { return use_of_template(chat_template, true); }
};

/// Checks the options and the first row's columns, as check() of ChatDataset does.
SourceDescription check(const AgentChatConfig& config);

/// Traces of agents that call tools (agent_trace.h), written with a chat template; the loss counts
/// what the assistant writes, including calls. A row cut so short that it has no label is kept.
class AgentChatDataset final : public Dataset {
 public:
  /// `encoder` must outlive the dataset. The filters read every row. Throws UserError, InputError.
  AgentChatDataset(const AgentChatConfig& config, const TextEncoder& encoder);

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  Sample at(int64_t index) const override;
  std::string origin(int64_t row) const override;
  std::vector<DataFingerprint> files() const override { return source_.files(); }
  uint64_t order_checksum() const override;

  /// Warnings for a run: rows that were left out.
  const std::vector<std::string>& findings() const { return findings_; }

 private:
  struct Conversation {
    Json messages;
    Json tools;
  };
  Conversation read(int64_t row) const;
  bool fits(const Json& messages, const Json& tools, const std::string& origin) const;
  void filter();

  AgentChatConfig config_;
  RowSource source_;
  ChatFormatter formatter_;
  std::vector<int64_t> rows_;  ///< the source's rows that are not left out
  std::vector<std::string> findings_;
};

}  // namespace automodel::datasets
