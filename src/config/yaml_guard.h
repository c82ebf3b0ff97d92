#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace automodel::config {

/// Bytes that a recipe may have.
inline constexpr size_t kLargestText = size_t{4} << 20;

struct TextProblem {
  int line = 0;
  int column = 0;
  std::string text;
};

/// Checks a text before a YAML parser reads it: UTF-8 without control characters, of bounded size
/// and nesting (flow brackets and indentation, found in one pass without recursion).
std::optional<TextProblem> find_text_problem(std::string_view text);

/// True for characters that YAML allows unescaped.
bool is_printable(uint32_t code);

}  // namespace automodel::config
