#pragma once

#include <string>

namespace automodel::cli {

/// `automodel render-chat`: reads JSON lines with conversations from stdin and prints lines with
/// `rendered` and `generation`, or with `error`, `line` and `column` of the template. `path` is the
/// template's file; "" when every line has a `template` of its own. Returns the exit status;
/// InputError names a line that is none.
int render_chat_lines(const std::string& path);

}  // namespace automodel::cli
