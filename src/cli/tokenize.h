#pragma once

#include <string>

namespace automodel::cli {

/// `automodel tokenize`: reads JSON lines with `text` from stdin and prints lines with `ids` and
/// `decoded`. Returns the exit status; InputError names a line that is none.
int tokenize_lines(const std::string& folder, bool adds_special_tokens);

}  // namespace automodel::cli
