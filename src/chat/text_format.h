#pragma once

#include <string>
#include <string_view>

#include "chat/run.h"

namespace automodel::chat {

/// format % values, where `values` is a tuple, a dict or one value. Throws Failure.
Value percent_format(Run& run, const Value& format, const Value& values);
/// format.format(*arguments), as the sandbox has it. Throws Failure.
std::string brace_format(Run& run, std::string_view format, const Arguments& arguments);

}  // namespace automodel::chat
