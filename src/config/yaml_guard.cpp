#include "config/yaml_guard.h"

#include <algorithm>
#include <vector>

#include "core/text.h"

namespace automodel::config {

namespace {

constexpr size_t kLargestText = size_t{4} << 20;
constexpr int kDeepest = 100;

/// Counts how deep brackets and indentation nest. A bracket inside a word opens nothing. Quotes and
/// comments are not looked at: brackets in them, which mostly close again, only tighten the bound.
class Depth {
 public:
  /// False when the character opens one level too many.
  bool accept(char c) {
    const char last = last_;
    last_ = c;
    if (c == '\n') {
      is_line_start_ = true;
      indent_ = 0;
      return true;
    }
    if (is_line_start_) {
      if (c == ' ') {
        ++indent_;
        return true;
      }
      if (!open_indent(c)) return false;
    }
    if (c == '[' || c == '{') return open_bracket(last);
    if ((c == ']' || c == '}') && brackets_ > 0) --brackets_;
    return true;
  }

 private:
  bool open_bracket(char last) {
    const bool follows_bracket = last == '[' || last == '{';
    constexpr std::string_view kBefore = " \t\n,:-?";
    last_opens_ = follows_bracket ? last_opens_ : kBefore.find(last) != std::string_view::npos;
    if (last_opens_) ++brackets_;
    return brackets_ <= kDeepest;
  }

  bool open_indent(char c) {
    // "- - - x" and "? ? x" nest on one line: each dash counts as a column of its own.
    const bool is_indicator = c == '-' || c == '?';
    if (brackets_ == 0) {
      while (!indents_.empty() && indents_.back() >= indent_) indents_.pop_back();
      indents_.push_back(indent_);
    }
    ++indent_;
    is_line_start_ = is_indicator;
    return static_cast<int>(indents_.size()) <= kDeepest;
  }

  std::vector<int> indents_;
  int indent_ = 0;
  int brackets_ = 0;
  char last_ = '\n';
  bool last_opens_ = false;
  bool is_line_start_ = true;
};

}  // namespace

size_t decode_utf8(std::string_view text, size_t at, uint32_t& code) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    code = first;
    return 1;
  }
  const size_t length = first >= 0xF0 && first <= 0xF4   ? 4
                        : first >= 0xE0 && first <= 0xEF ? 3
                        : first >= 0xC2 && first <= 0xDF ? 2
                                                         : 0;
  if (length == 0 || at + length > text.size()) return 0;
  code = first & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = (code << 6) | (byte(i) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < kLeast[length] || code > 0x10FFFF || is_surrogate ? 0 : length;
}

bool is_printable(uint32_t code) {
  if (code == '\t' || code == '\n' || code == 0x85) return true;
  return (code >= 0x20 && code < 0x7F) || (code >= 0xA0 && code != 0xFFFE && code != 0xFFFF);
}

bool is_utf8(std::string_view text) {
  uint32_t code = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = decode_utf8(text, at, code);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::optional<TextProblem> find_text_problem(std::string_view text) {
  if (text.size() > kLargestText) {
    return TextProblem{1, 1,
                       cat("a recipe has at most ", format_bytes(kLargestText), ", this one ",
                           format_bytes(text.size()))};
  }
  Depth depth;
  int line = 1;
  int column = 1;
  for (size_t at = 0; at < text.size();) {
    uint32_t code = 0;
    const size_t length = decode_utf8(text, at, code);
    if (length == 0) return TextProblem{line, column, "not UTF-8; save the file as UTF-8"};
    if (!is_printable(code)) {
      return TextProblem{line, column, cat("control character ", code, " in the text; remove it")};
    }
    if (!depth.accept(text[at])) {
      return TextProblem{line, column, cat("nested deeper than ", kDeepest, " levels")};
    }
    ++column;
    if (code == '\n') {
      ++line;
      column = 1;
    }
    at += length;
  }
  return std::nullopt;
}

}  // namespace automodel::config
