#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/utf8.h"

namespace automodel::chat {

// Texts are valid UTF-8; positions and lengths that Python code sees count code points.

/// Code points of a text.
int64_t count_code_points(std::string_view text);
/// The byte where the code point of this number begins; the text's size when there is none.
size_t byte_of_code_point(std::string_view text, int64_t number);

// Python's str.isalpha() and its like, of one character.
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_space(char32_t c);
bool is_printable(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
inline bool is_alphanumeric(char32_t c) {
  return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c);
}

// Python's str.upper() and its like.
std::string to_upper_case(std::string_view text);
std::string to_lower_case(std::string_view text);
std::string to_title_case(std::string_view text);
std::string capitalized(std::string_view text);
std::string with_swapped_case(std::string_view text);
std::string case_folded(std::string_view text);

/// Without white space (Python's) at the left, the right or both ends.
std::string_view stripped(std::string_view text, bool at_left, bool at_right);

/// Where `wanted` is in `text` at or behind byte `from`, in time linear in both; npos: nowhere.
size_t find_in(std::string_view text, std::string_view wanted, size_t from = 0);
/// Where the last `wanted` is in `text`, in time and memory linear in both; npos: nowhere.
size_t find_last_in(std::string_view text, std::string_view wanted);

}  // namespace automodel::chat
