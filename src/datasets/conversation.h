#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace automodel::datasets {

struct SourceDescription;

/// The messages of a row in OpenAI's form, as upstream normalizes them before a template sees them:
/// `messages` as they are, or ShareGPT's `conversations` (`from`/`value` or `role`/`content`).
/// Roles are system, user, assistant and tool; content becomes text: parts are joined by spaces,
/// null is "". Arguments of tool calls that are JSON texts become objects. Throws InputError
/// "ORIGIN: message 3:
/// ..." for anything else.
Json read_messages(const Json& row, const std::string& origin);

/// The `tools` of a row: a list, or a list as JSON text; null when there are none. Throws
/// InputError.
Json read_tools(const Json& row, const std::string& origin);

/// A message's content as text: parts are joined by spaces, null is "". Throws InputError "WHERE:
/// ...".
Json content_text(const Json& content, const std::string& where);

/// A call's arguments: JSON texts become what they hold, an absent or empty one "". Throws
/// InputError "WHERE: ...".
Json read_arguments(const Json* arguments, const std::string& where);

/// A call of a function as a message's `tool_calls` holds it.
Json make_tool_call(const std::string& id, const std::string& name, Json arguments);

/// How ids of calls begin that a row does not name: "call", or "call_ID" of the row's `id`.
std::string call_id_prefix(const Json& row);

/// Throws InputError when there are neither messages nor conversations.
void check_conversation_columns(const SourceDescription& description);

/// A message of a role.
Json make_message(const std::string& role, const std::string& content);

/// A user's question and the assistant's answer.
Json question_and_answer(const std::string& question, const std::string& answer);

}  // namespace automodel::datasets
