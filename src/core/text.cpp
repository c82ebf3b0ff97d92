#include "core/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace automodel {

namespace text_detail {

void append(std::string& out, std::string_view piece) {
  out.append(piece);
}
void append(std::string& out, const char* piece) {
  out.append(piece);
}
void append(std::string& out, char piece) {
  out.push_back(piece);
}
void append(std::string& out, bool piece) {
  out.append(piece ? "true" : "false");
}
void append(std::string& out, long long piece) {
  out.append(std::to_string(piece));
}
void append(std::string& out, unsigned long long piece) {
  out.append(std::to_string(piece));
}

void append(std::string& out, double piece) {
  std::array<char, 64> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), piece);
  out.append(buffer.data(), end);
}

void append(std::string& out, float piece) {
  std::array<char, 64> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), piece);
  out.append(buffer.data(), end);
}

}  // namespace text_detail

std::string join(std::span<const std::string> pieces, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0) out.append(separator);
    out.append(pieces[i]);
  }
  return out;
}

std::string join(std::span<const int64_t> numbers, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out.append(separator);
    out.append(std::to_string(numbers[i]));
  }
  return out;
}

namespace {

template <typename T>
std::string first_and_rest(std::span<const T> items, size_t most) {
  if (items.size() <= most) return join(items, ", ");
  return cat(join(items.first(most), ", "), " and ", items.size() - most, " more");
}

}  // namespace

std::string join_first(std::span<const std::string> pieces, size_t most) {
  return first_and_rest(pieces, most);
}

std::string join_first(std::span<const int64_t> numbers, size_t most) {
  return first_and_rest(numbers, most);
}

std::string count_and_first(std::span<const std::string> pieces, size_t most) {
  return cat("(", pieces.size(), "): ", join_first(pieces, most));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    pieces.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return pieces;
    begin = end + 1;
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\f\v";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  if (from.empty()) return text;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

int edit_distance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<int> before_last(width), last(width), row(width);
  for (size_t j = 0; j < width; ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j < width; ++j) {
      const int replace_cost = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + replace_cost});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::optional<std::string> closest_match(std::string_view word,
                                         std::span<const std::string> candidates) {
  constexpr size_t kShort = 5;
  const int limit = std::max(2, static_cast<int>(word.size()) / 3);
  const std::string* best = nullptr;
  int best_distance = limit + 1;
  const std::string lowered = to_lower(word);
  for (const std::string& candidate : candidates) {
    const std::string other = to_lower(candidate);
    const int distance = edit_distance(lowered, other);
    // Two slips leave little of a short word: alfa is alpha, but Lion is not Muon.
    const bool is_another = word.size() < kShort && distance > 1 && lowered[0] != other[0];
    if (is_another) continue;
    if (distance < best_distance && distance < static_cast<int>(candidate.size())) {
      best_distance = distance;
      best = &candidate;
    }
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const auto match = closest_match(word, candidates);
  return match && *match != word ? cat("; did you mean '", *match, "'?") : std::string();
}

std::string shell_quoted(std::string_view text) {
  return cat("'", replace_all(std::string(text), "'", "'\\''"), "'");
}

std::string shell_word(std::string_view text) {
  const auto is_plain = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("_-./:=@%+,").find(c) != std::string_view::npos;
  };
  const bool is_word = !text.empty() && std::ranges::all_of(text, is_plain);
  return is_word ? std::string(text) : shell_quoted(text);
}

std::string format_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  const bool is_whole = unit == 0 || value >= 100.0 || value == std::floor(value);
  return cat(format_fixed(value, is_whole ? 0 : 1), " ", kUnits[unit]);
}

std::string format_duration(double seconds) {
  if (seconds < 60.0) return cat(format_fixed(seconds, 1), " s");
  constexpr double kLongest = 1e15;  // seconds; the next ones are no whole numbers in 64 bits
  if (!(seconds < kLongest)) return "forever";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const auto two_digits = [](int64_t n) { return cat(n < 10 ? "0" : "", n); };
  if (whole < 3600) return cat(whole / 60, " min ", two_digits(whole % 60), " s");
  return cat(whole / 3600, " h ", two_digits(whole % 3600 / 60), " min");
}

std::string format_fixed(double value, int decimals) {
  if (std::isnan(value)) return "nan";  // whatever its sign
  std::array<char, 512> buffer;
  const int size = std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
  return std::string(buffer.data(), static_cast<size_t>(size));
}

std::string format_scientific(double value, int decimals) {
  if (std::isnan(value)) return "nan";
  std::array<char, 128> buffer;
  const int size = std::snprintf(buffer.data(), buffer.size(), "%.*e", decimals, value);
  return std::string(buffer.data(), static_cast<size_t>(size));
}

std::string shortest_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string out = cat(value);
  const bool looks_whole = out.find_first_of(".e") == std::string::npos;
  return looks_whole ? out + ".0" : out;
}

namespace {
template <typename T>
std::optional<T> parse_whole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}
}  // namespace

std::optional<int64_t> parse_int(std::string_view text) {
  return parse_whole<int64_t>(text);
}
std::optional<double> parse_double(std::string_view text) {
  return parse_whole<double>(text);
}

}  // namespace automodel
