#pragma once

#include <cstdint>
#include <string>

namespace automodel::cli {

/// `automodel render-chat`: reads JSON lines with conversations from stdin and prints lines with
/// `rendered` and `generation`, or with `error`, `line` and `column` of the template. `path` is the
/// template's file; "" when every line has a `template` of its own. With `repeat` above 1 every
/// line is rendered so often, and `seconds` says how long one rendering took. Returns the exit
/// status; InputError names a line that is none.
int render_chat_lines(const std::string& path, int64_t repeat);

}  // namespace automodel::cli
