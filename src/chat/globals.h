#pragma once

#include <string_view>

#include "chat/value.h"

namespace automodel::chat {

/// A function that every template has (range, namespace, raise_exception ...); missing when there
/// is none of that name.
Value find_global(std::string_view name);

}  // namespace automodel::chat
