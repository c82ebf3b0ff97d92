#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace automodel {

/// A regular expression as Python's re reads it, of UTF-8 texts without line breaks, but for
/// escapes by code point (\u, \N), \v and the flags a, L and u, which are refused. Threads may
/// share one.
class PythonPattern final {
 public:
  /// Throws UserError with what is wrong: "missing closing parenthesis".
  explicit PythonPattern(std::string_view expression);

  /// re.search: whether some part of the text matches. Throws UserError when that takes more steps
  /// than PCRE2 allows.
  bool is_in(std::string_view text) const;
  /// re.fullmatch: whether all of the text does. Throws as is_in().
  bool is_all_of(std::string_view text) const;

 private:
  struct Program;
  bool matches(std::string_view text, bool is_whole) const;

  std::shared_ptr<const Program> program_;
};

}  // namespace automodel
