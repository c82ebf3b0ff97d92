#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace automodel::datasets {

struct SourceDescription;

/// Converts a row's messages to OpenAI's form, as upstream does before a template gets them:
/// `messages` unchanged, or ShareGPT's `conversations` (`from`/`value` or `role`/`content`). Roles
/// are system, user, assistant and tool; content becomes text: parts are joined by spaces, null is
/// "". Tool calls' arguments given as JSON texts become objects. Throws InputError "ORIGIN: message
/// 3: ..." for anything else.
Json read_messages(const Json& row, const std::string& origin);

/// The `tools` of a row: a list, or a list as JSON text; null when there are none. Throws
/// InputError.
Json read_tools(const Json& row, const std::string& origin);

/// A message's content as text: parts are joined by spaces, null is "". Throws InputError "WHERE:
/// ...".
Json content_text(const Json& content, const std::string& where);

/// A call's arguments: JSON texts are parsed; absent or empty ones become "". Throws InputError
/// "WHERE: ...".
Json read_arguments(const Json* arguments, const std::string& where);

/// A function call in the form of a message's `tool_calls`.
Json make_tool_call(const std::string& id, const std::string& name, Json arguments);

/// The beginning of ids for calls without one: "call", or "call_ID" with the row's `id`.
std::string call_id_prefix(const Json& row);

/// Throws InputError when there are neither messages nor conversations.
void check_conversation_columns(const SourceDescription& description);

/// A message of a role.
Json make_message(const std::string& role, const std::string& content);

/// A user's question and the assistant's answer.
Json question_and_answer(const std::string& question, const std::string& answer);

}  // namespace automodel::datasets
