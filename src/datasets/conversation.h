#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace automodel::datasets {

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

/// A message of a role.
Json make_message(const std::string& role, const std::string& content);

/// A user's question and the assistant's answer.
Json question_and_answer(const std::string& question, const std::string& answer);

}  // namespace automodel::datasets
