#pragma once

#include <string>

namespace automodel {

/// Appends the UTF-8 bytes of a code point, which is at most U+10FFFF.
void append_utf8(std::string& out, char32_t code_point);

}  // namespace automodel
