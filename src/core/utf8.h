#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace automodel {

/// Appends the UTF-8 bytes of a code point, which is at most U+10FFFF.
void append_utf8(std::string& out, char32_t code_point);

/// Length of the well-formed UTF-8 sequence at `at`, whose code point is stored in `code`; 0 if
/// none.
size_t decode_utf8(std::string_view text, size_t at, uint32_t& code);

/// True when all of the text is well-formed UTF-8.
bool is_utf8(std::string_view text);

/// Reads the code point at `position` of valid UTF-8 and moves `position` past it.
char32_t next_code_point(std::string_view text, size_t& position);

/// Reads the code point that ends at `position` of valid UTF-8 and moves `position` to its
/// beginning.
char32_t previous_code_point(std::string_view text, size_t& position);

/// How many of the first `most` bytes of a text are whole characters; all of a text that is not
/// longer.
size_t num_whole_bytes(std::string_view text, size_t most);

/// A text, or as many of its first `most` bytes as are whole characters, and "...".
std::string shortened(std::string_view text, size_t most);

}  // namespace automodel
