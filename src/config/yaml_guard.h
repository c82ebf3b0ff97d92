#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace automodel::config {

struct TextProblem {
  int line = 0;
  int column = 0;
  std::string text;
};

/// What a text must be before a YAML parser sees it: UTF-8 without control characters, of bounded
/// size and nesting (flow brackets and indentation, found in one pass without recursion).
std::optional<TextProblem> find_text_problem(std::string_view text);

/// Length of the well-formed UTF-8 sequence at `at`, 0 when there is none; its code in `code`.
size_t decode_utf8(std::string_view text, size_t at, uint32_t& code);

/// True for characters that YAML takes as they are.
bool is_printable(uint32_t code);

/// True when all of the text is well-formed UTF-8.
bool is_utf8(std::string_view text);

}  // namespace automodel::config
