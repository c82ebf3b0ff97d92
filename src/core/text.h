#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace automodel {

namespace text_detail {
void append(std::string& out, std::string_view piece);
void append(std::string& out, const char* piece);
void append(std::string& out, char piece);
void append(std::string& out, bool piece);
void append(std::string& out, double piece);
void append(std::string& out, float piece);
void append(std::string& out, long long piece);
void append(std::string& out, unsigned long long piece);

template <typename T>
requires(std::integral<T> && !std::same_as<T, bool> &&
         !std::same_as<T, char>) void append(std::string& out, T piece) {
  if constexpr (std::is_signed_v<T>) {
    append(out, static_cast<long long>(piece));
  } else {
    append(out, static_cast<unsigned long long>(piece));
  }
}
}  // namespace text_detail

/// Concatenates its arguments (strings, characters, numbers, bools as true/false). Doubles are
/// written with the fewest digits that read back to the same value.
template <typename... Pieces>
std::string cat(const Pieces&... pieces) {
  std::string out;
  (text_detail::append(out, pieces), ...);
  return out;
}

/// Joins strings with a separator between them.
std::string join(std::span<const std::string> pieces, std::string_view separator);

/// Joins numbers the way a Python list prints them, without brackets: "1, 2, 3".
std::string join(std::span<const int64_t> numbers, std::string_view separator = ", ");

/// "a, b, c and 4 more": the first `most` of them.
std::string join_first(std::span<const std::string> pieces, size_t most);
std::string join_first(std::span<const int64_t> numbers, size_t most);

/// "(7): a, b, c and 4 more": how many, and the first `most` of them.
std::string count_and_first(std::span<const std::string> pieces, size_t most = 10);

/// Splits at every `separator`; "a,,b" gives three pieces, "" gives one empty piece.
std::vector<std::string> split(std::string_view text, char separator);

/// `text` without white space at both ends.
std::string_view trim(std::string_view text);

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';  // ASCII only
}

std::string to_lower(std::string_view text);  ///< ASCII only
std::string replace_all(std::string text, std::string_view from, std::string_view to);

/// Damerau-Levenshtein distance (insert, delete, replace, swap of neighbours).
int edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, if near enough to be a misspelling.
std::optional<std::string> closest_match(std::string_view word,
                                         std::span<const std::string> candidates);

/// "; did you mean 'x'?" for the nearest candidate, or "" when none is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

/// `text` in quotes of which a POSIX shell reads one word.
std::string shell_quoted(std::string_view text);

/// `text` as one word of a command that a POSIX shell reads: as it is, or in quotes.
std::string shell_word(std::string_view text);

/// "1.5 GiB", "12 KiB", "17 B".
std::string format_bytes(uint64_t bytes);

/// "3.2 s", "2 min 05 s", "1 h 02 min".
std::string format_duration(double seconds);

/// printf's "%.*f".
std::string format_fixed(double value, int decimals);

/// printf's "%.*e".
std::string format_scientific(double value, int decimals);

/// The shortest decimal text that parses to `value`, always with a point or an exponent ("1.0"), as
/// Python's repr; "inf", "-inf" or "nan" for those.
std::string shortest_repr(double value);

/// `text` as a whole / real number; nullopt if there is anything else before or after it.
std::optional<int64_t> parse_int(std::string_view text);
std::optional<double> parse_double(std::string_view text);

}  // namespace automodel
