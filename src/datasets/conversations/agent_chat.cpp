#include "datasets/conversations/agent_chat.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/text.h"
#include "datasets/conversations/conversation.h"
#include "datasets/rows/order_checksum.h"

namespace automodel::datasets {

namespace {

void validate(const AgentChatConfig& config) {
  if (config.dataset_name.has_value() != config.path.empty()) {
    throw UserError("give either dataset_name (data set of the hub, or a folder) or path (files)");
  }
  if (!config.path.empty() && (config.split != "train" || config.revision)) {
    throw UserError(
        "split and revision are of dataset_name; all rows of path are read "
        "(limit_dataset_samples takes the first ones)");
  }
  config.format().format.validate();
  for (const auto& [is_set, key] : {std::pair{config.filter_overlong, "filter_overlong"},
                                    std::pair{config.truncate_history, "truncate_history"}}) {
    if (is_set && !config.seq_length) throw UserError(cat(key, ": true needs seq_length"));
  }
}

}  // namespace

SourceOptions AgentChatConfig::source() const {
  if (!dataset_name) return {path, std::nullopt, std::nullopt, limit_dataset_samples};
  SourceOptions options = limited_source(*dataset_name, split, limit_dataset_samples);
  options.revision = revision.value_or("main");
  return options;
}

ChatFormatOptions AgentChatConfig::format() const {
  return {.format = {seq_length, padding, truncation, true, false},
          .mask_history = train_on_last_turn_only,
          .mask_reasoning_content = mask_reasoning_content,
          .mask_generation_prompt = mask_generation_prompt};
}

SourceDescription check(const AgentChatConfig& config) {
  validate(config);
  check_template(config.chat_template);
  SourceDescription description = describe_source(config.source());
  if (!description.note) check_conversation_columns(description);
  return description;
}

AgentChatDataset::AgentChatDataset(const AgentChatConfig& config, const TextEncoder& encoder)
    : config_(config),
      source_((validate(config), config.source())),
      formatter_(encoder, config.chat_template, config.format()),
      rows_(static_cast<size_t>(source_.size())) {
  std::iota(rows_.begin(), rows_.end(), int64_t{0});
  filter();
  at(0);
}

void AgentChatDataset::filter() {
  if (!config_.filter_no_assistant && !config_.filter_overlong) return;
  const auto all = static_cast<int64_t>(rows_.size());
  int64_t num_overlong = 0;
  std::erase_if(rows_, [&](int64_t row) {
    if (config_.filter_no_assistant && !has_assistant_message(source_.row(row))) return true;
    if (!config_.filter_overlong) return false;
    const Conversation conversation = read(row);
    if (fits(conversation.messages, conversation.tools, source_.origin(row))) return false;
    ++num_overlong;
    return true;
  });
  if (size() == all) return;
  const std::string counts = cat(num_overlong, " longer than seq_length, ",
                                 all - size() - num_overlong, " without the assistant");
  if (rows_.empty()) {
    throw InputError(cat(source_.origin(0), ": all rows are left out: ", counts));
  }
  findings_.push_back(
      cat(source_.origin(0), ": ", all - size(), " of ", all, " rows are left out: ", counts));
}

bool AgentChatDataset::fits(const Json& messages, const Json& tools,
                            const std::string& origin) const {
  return formatter_.num_tokens(messages, tools, origin) <= *config_.seq_length;
}

AgentChatDataset::Conversation AgentChatDataset::read(int64_t row) const {
  const std::string origin = source_.origin(row);
  const Json columns = source_.row(row);
  const TraceOptions options{config_.trim_incomplete_last_turn,
                             config_.drop_history_reasoning_content};
  Conversation conversation{read_trace(columns, options, origin), read_tools(columns, origin)};
  if (!config_.truncate_history) return conversation;
  // The most exchanges that fit; the last one alone where none does.
  const Json whole = conversation.messages;
  const int64_t num_droppable = std::max<int64_t>(num_exchanges(whole) - 1, 0);
  for (int64_t count = 0; !fits(conversation.messages, conversation.tools, origin); ++count) {
    if (num_exchanges(whole) > 0) conversation.messages = drop_exchanges(whole, count);
    if (count == num_droppable) break;
  }
  return conversation;
}

Sample AgentChatDataset::at(int64_t index) const {
  const int64_t row = rows_[static_cast<size_t>(index)];
  const Conversation conversation = read(row);
  Sample sample = formatter_.format(conversation.messages, conversation.tools, source_.origin(row));
  sample.row = index;
  return sample;
}

uint64_t AgentChatDataset::order_checksum() const {
  return OrderChecksum().add(static_cast<int64_t>(source_.order_checksum())).add(rows_).value();
}

std::string AgentChatDataset::origin(int64_t row) const {
  return source_.origin(rows_[static_cast<size_t>(row)]);
}

}  // namespace automodel::datasets
