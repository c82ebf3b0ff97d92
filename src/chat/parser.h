#pragma once

#include <memory>
#include <string_view>

#include "chat/ast.h"

namespace automodel::chat {

/// Reads a template; names are not resolved yet. Throws Failure with line and column.
std::unique_ptr<Program> parse_program(std::string_view source);

}  // namespace automodel::chat
