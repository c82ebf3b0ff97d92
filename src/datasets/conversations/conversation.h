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
/// "". Throws InputError "ORIGIN: message 3: ..." for anything else.
Json read_messages(const Json& row, const std::string& origin);

/// The messages with the arguments of tool calls parsed where they are JSON texts.
Json with_parsed_arguments(const Json& messages);
/// The messages with the arguments of tool calls as texts: as they are, or as json.dumps writes
/// them.
Json with_argument_texts(const Json& messages);

/// The `tools` of a row: a list, or a list as JSON text; null when there are none. Throws
/// InputError.
Json read_tools(const Json& row, const std::string& origin);

/// A message's content as text: parts are joined by spaces, null is "". Throws InputError "WHERE:
/// ...".
Json content_text(const Json& content, const std::string& where);

/// A call's arguments as a text: JSON texts as they are, what is none as json.dumps(value,
/// ensure_ascii=False) writes it, "" where they are absent. Throws InputError "WHERE: ..." for a
/// text that is no JSON.
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
