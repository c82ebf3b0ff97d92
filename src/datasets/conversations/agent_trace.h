#pragma once

#include <string>

#include "core/json.h"

namespace automodel::datasets {

/// How an agent's trace becomes a conversation.
struct TraceOptions {
  bool trims_incomplete_last_turn = false;  ///< drops messages after the assistant's last one
  bool drops_history_reasoning = false;     ///< keeps reasoning_content in the last turn only
};

/// Whether a row, before conversion, has a message of the assistant; a call alone does not count.
bool has_assistant_message(const Json& row);

/// Converts a trace to messages in OpenAI's form, as upstream does. A row has `messages` (roles
/// system, user, assistant, tool, and Swift's tool_call and tool_response) or ShareGPT's
/// `conversations` (system, human, user, gpt, assistant, function_call, tool_call, observation,
/// tool_response, tool).
///   - Consecutive calls become one message of the assistant with parallel `tool_calls`; after a
///     message of the assistant without calls they are added to that message.
///   - Responses get the ids of the preceding calls, in order.
///   - Arguments given as JSON texts become objects.
/// Throws InputError "ORIGIN: message 3: ..." for anything else.
Json read_trace(const Json& row, const TraceOptions& options, const std::string& origin);

/// The messages without the `count` oldest exchanges; an exchange begins with a user message.
/// System messages at the beginning are kept. `count` is at most num_exchanges() - 1.
Json drop_exchanges(const Json& messages, int64_t count);

/// The number of exchanges: user messages after the system's.
int64_t num_exchanges(const Json& messages);

}  // namespace automodel::datasets
