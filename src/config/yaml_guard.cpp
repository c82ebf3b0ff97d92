#include "config/yaml_guard.h"

#include <algorithm>
#include <vector>

#include "core/text.h"
#include "core/utf8.h"

namespace automodel::config {

namespace {

constexpr int kMostLevels = 100;

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
    return brackets_ <= kMostLevels;
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
    return static_cast<int>(indents_.size()) <= kMostLevels;
  }

  std::vector<int> indents_;
  int indent_ = 0;
  int brackets_ = 0;
  char last_ = '\n';
  bool last_opens_ = false;
  bool is_line_start_ = true;
};

}  // namespace

bool is_printable(uint32_t code) {
  if (code == '\t' || code == '\n' || code == 0x85) return true;
  return (code >= 0x20 && code < 0x7F) || (code >= 0xA0 && code != 0xFFFE && code != 0xFFFF);
}

std::optional<TextProblem> find_text_problem(std::string_view text) {
  if (text.size() > kLargestText) {
    return TextProblem{
        1, 1, cat("a recipe has at most ", format_bytes(kLargestText), ", this one has more")};
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
      return TextProblem{line, column, cat("nested deeper than ", kMostLevels, " levels")};
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
