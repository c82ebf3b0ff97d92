#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::tokenizers {

/// A range of bytes that a pattern matched, or the text between two matches.
struct Match {
  size_t begin = 0;
  size_t end = 0;
  bool is_match = false;
};

/// A pattern as tokenizer.json writes it: Oniguruma's syntax (which `tokenizers` uses), matched by
/// PCRE2 with its JIT on UTF-8 by Unicode properties; or a plain text. Threads may share one.
class Regex final {
 public:
  /// Throws InputError "WHERE: cannot use the regular expression '...': reason".
  static Regex from_pattern(std::string_view pattern, std::string_view where);
  /// Matches the text itself.
  static Regex from_literal(std::string_view text, std::string_view where);

  Regex(Regex&& other) noexcept;
  Regex& operator=(Regex&& other) noexcept;
  ~Regex();

  /// Cuts valid UTF-8 into matches and what is between them, in order and covering all of it, and
  /// appends them to `out`. Empty matches are included. Throws InputError when the pattern needs
  /// more steps on this text than PCRE2 allows.
  void find_all(std::string_view text, std::vector<Match>& out) const;

 private:
  struct Program;
  Regex();
  std::string literal_;
  std::unique_ptr<Program> program_;  // none for a literal
};

/// An Oniguruma pattern in PCRE2's syntax. Throws InputError naming what has no counterpart.
std::string translate_oniguruma(std::string_view pattern);

}  // namespace automodel::tokenizers
