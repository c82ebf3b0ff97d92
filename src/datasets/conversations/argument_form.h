#pragma once

#include <cstdint>

#include "chat/chat_template.h"
#include "core/json.h"

namespace automodel::datasets {

/// Whether any message calls tools.
bool has_calls(const Json& messages);

/// Whether a chat template is for arguments of tool calls as JSON texts: it writes these as they
/// are, and fails with objects or writes them as Python prints them. Asked by conversations with a
/// call, of which the first that the template takes decides; false where it takes none.
/// `variables`: the tokenizer's special tokens by name; `now`: as for ChatTemplate::render.
bool takes_argument_texts(const chat::ChatTemplate& source, const Json& variables, bool has_tools,
                          int64_t now);

}  // namespace automodel::datasets
