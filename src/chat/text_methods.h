#pragma once

#include <string_view>

#include "chat/value.h"

namespace automodel::chat {

/// The methods of str; nullptr when there is none of that name.
const Builtin* find_text_method(std::string_view name);

}  // namespace automodel::chat
