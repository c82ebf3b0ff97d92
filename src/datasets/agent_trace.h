#pragma once

#include <string>

#include "core/json.h"

namespace automodel::datasets {

/// How the trace of an agent becomes a conversation.
struct TraceOptions {
  bool trims_incomplete_last_turn = false;  ///< drops what follows the assistant's last message
  bool drops_history_reasoning = false;     ///< reasoning_content stays in the last turn only
};

/// Whether a row holds a message of the assistant, before conversion: a call alone does not count.
bool has_assistant_message(const Json& row);

/// The messages of a trace in OpenAI's form, as upstream converts them. A row has `messages` (roles
/// system, user, assistant, tool, and Swift's tool_call and tool_response) or ShareGPT's
/// `conversations` (system, human, user, gpt, assistant, function_call, tool_call, observation,
/// tool_response, tool).
///   - Calls that follow each other are one message of the assistant with parallel `tool_calls`;
///     behind a message of the assistant without calls they become that message's.
///   - Responses get the ids of the calls before them, in order.
///   - Arguments that are JSON texts become objects.
/// Throws InputError "ORIGIN: message 3: ..." for anything else.
Json read_trace(const Json& row, const TraceOptions& options, const std::string& origin);

/// The messages without their `count` oldest exchanges, an exchange beginning with a message of the
/// user; system messages at the beginning stay. `count` is at most num_exchanges() - 1.
Json drop_exchanges(const Json& messages, int64_t count);

/// Exchanges of a conversation: messages of the user behind the system's.
int64_t num_exchanges(const Json& messages);

}  // namespace automodel::datasets
