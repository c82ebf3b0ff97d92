#include "config/scalar.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "config/python_literal.h"
#include "core/text.h"

namespace automodel::config {

namespace {

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (text == word) return true;
  }
  return false;
}

/// Reads a text from the left; the matchers below follow PyYAML's resolver patterns.
class Scan {
 public:
  explicit Scan(std::string_view text) : rest_(text) {}

  bool done() const { return rest_.empty(); }
  bool take(char c) {
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take_sign() { return take('-') || take('+'); }
  template <typename Accepts>
  size_t take_while(Accepts accepts) {
    size_t count = 0;
    while (count < rest_.size() && accepts(rest_[count])) ++count;
    rest_.remove_prefix(count);
    return count;
  }
  size_t take_digits() { return take_while(is_digit); }
  /// At least `least` and at most `most` digits.
  bool take_digits(size_t least, size_t most) {
    size_t count = 0;
    while (count < most && count < rest_.size() && is_digit(rest_[count])) ++count;
    rest_.remove_prefix(count);
    return count >= least;
  }
  size_t take_digits_or_underscores() {
    return take_while([](char c) { return is_digit(c) || c == '_'; });
  }
  /// (?::[0-5]?[0-9])+
  bool take_base_60_parts() {
    bool is_any = false;
    while (!rest_.empty() && rest_[0] == ':') {
      std::string_view after = rest_.substr(1);
      if (after.empty() || !is_digit(after[0])) return false;
      if (after.size() > 1 && is_digit(after[1])) {
        if (after[0] > '5') return false;
        rest_ = after.substr(2);
      } else {
        rest_ = after.substr(1);
      }
      is_any = true;
    }
    return is_any;
  }
  char peek() const { return rest_.empty() ? '\0' : rest_[0]; }

 private:
  std::string_view rest_;
};

bool looks_like_bool(std::string_view text) {
  return is_one_of(text, {"yes", "Yes", "YES", "no", "No", "NO", "true", "True", "TRUE", "false",
                          "False", "FALSE", "on", "On", "ON", "off", "Off", "OFF"});
}

bool looks_like_null(std::string_view text) {
  return is_one_of(text, {"", "~", "null", "Null", "NULL"});
}

bool is_decimal_float(std::string_view text) {
  Scan scan(text);
  const bool has_sign = scan.take_sign();
  if (is_digit(scan.peek())) {
    scan.take_digits_or_underscores();
    if (!scan.take('.')) return false;
    scan.take_digits_or_underscores();
  } else {
    if (has_sign || !scan.take('.') || !is_digit(scan.peek())) return false;
    scan.take_digits_or_underscores();
  }
  if (scan.done()) return true;
  if (!scan.take('e') && !scan.take('E')) return false;
  return scan.take_sign() && scan.take_digits() > 0 && scan.done();
}

bool is_base_60_float(std::string_view text) {
  Scan scan(text);
  scan.take_sign();
  if (!is_digit(scan.peek())) return false;
  scan.take_digits_or_underscores();
  if (!scan.take_base_60_parts() || !scan.take('.')) return false;
  scan.take_digits_or_underscores();
  return scan.done();
}

bool is_base_60_int(std::string_view text) {
  Scan scan(text);
  scan.take_sign();
  if (!is_digit(scan.peek()) || scan.peek() == '0') return false;
  scan.take_digits_or_underscores();
  return scan.take_base_60_parts() && scan.done();
}

bool looks_like_int(std::string_view text) {
  Scan scan(text);
  scan.take_sign();
  if (!scan.take('0')) {
    if (!is_digit(scan.peek())) return false;
    scan.take_digits_or_underscores();
    return scan.done() || is_base_60_int(text);
  }
  if (scan.done()) return true;
  if (scan.take('b')) {
    return scan.take_while([](char c) { return c == '0' || c == '1' || c == '_'; }) > 0 &&
           scan.done();
  }
  if (scan.take('x')) {
    const size_t count = scan.take_while([](char c) {
      return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == '_';
    });
    return count > 0 && scan.done();
  }
  scan.take_while([](char c) { return (c >= '0' && c <= '7') || c == '_'; });
  return scan.done();
}

bool looks_like_date(std::string_view text) {
  Scan scan(text);
  if (!scan.take_digits(4, 4) || !scan.take('-')) return false;
  if (!scan.take_digits(1, 2) || !scan.take('-') || !scan.take_digits(1, 2)) return false;
  if (scan.done()) return text.size() == 10;
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  if (!scan.take('T') && !scan.take('t') && scan.take_while(is_blank) == 0) return false;
  if (!scan.take_digits(1, 2) || !scan.take(':')) return false;
  if (!scan.take_digits(2, 2) || !scan.take(':') || !scan.take_digits(2, 2)) return false;
  if (scan.take('.')) scan.take_digits();
  scan.take_while(is_blank);
  if (scan.done()) return !is_blank(text.back());
  if (scan.take('Z')) return scan.done();
  if (!scan.take_sign() || !scan.take_digits(1, 2)) return false;
  if (scan.take(':') && !scan.take_digits(2, 2)) return false;
  return scan.done();
}

/// The numbers in a text of digits and other characters.
std::vector<int> numbers_in(std::string_view text) {
  std::vector<int> numbers;
  bool in_number = false;
  for (const char c : text) {
    if (is_digit(c)) {
      if (!in_number) numbers.push_back(0);
      numbers.back() = std::min(numbers.back() * 10 + (c - '0'), 100000000);
    }
    in_number = is_digit(c);
  }
  return numbers;
}

/// True when the calendar and the clock have such a date.
bool is_real_date(std::string_view text) {
  const std::vector<int> parts = numbers_in(text);
  const int year = parts[0];
  const int month = parts[1];
  const int day = parts[2];
  if (year < 1 || month < 1 || month > 12 || day < 1) return false;
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  if (day > kDays[month - 1] + (month == 2 && is_leap ? 1 : 0)) return false;
  if (parts.size() < 6) return true;
  return parts[3] < 24 && parts[4] < 60 && parts[5] < 60;
}

/// The value of whole digits in a base; a double beyond int64. Empty when there are no digits.
std::optional<Node> integer_of(std::string_view digits, int base, bool is_negative) {
  if (digits.empty()) return std::nullopt;
  int64_t whole = 0;
  double approximate = 0;
  bool is_exact = true;
  for (const char c : digits) {
    const int digit = is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
    is_exact = is_exact && !__builtin_mul_overflow(whole, base, &whole) &&
               !__builtin_add_overflow(whole, is_negative ? -digit : digit, &whole);
    approximate = approximate * base + digit;
  }
  if (is_exact) return Node::integer(whole);
  if (base == 10) approximate = std::strtod(std::string(digits).c_str(), nullptr);  // rounds once
  return Node::big_integer(is_negative ? -approximate : approximate);
}

std::optional<Node> resolve_int(std::string_view text) {
  const std::string plain = replace_all(std::string(text), "_", "");
  std::string_view digits = plain;
  const bool is_negative = digits.starts_with('-');
  if (digits.starts_with('-') || digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.starts_with("0b")) return integer_of(digits.substr(2), 2, is_negative);
  if (digits.starts_with("0x")) return integer_of(digits.substr(2), 16, is_negative);
  if (digits.starts_with('0')) return integer_of(digits, 8, is_negative);
  if (digits.find(':') == std::string_view::npos) return integer_of(digits, 10, is_negative);
  double value = 0;
  for (const std::string& part : split(digits, ':')) value = value * 60 + std::atof(part.c_str());
  if (is_negative) value = -value;
  if (std::abs(value) < 9e15) return Node::integer(static_cast<int64_t>(value));
  return Node::big_integer(value);
}

std::optional<Node> resolve_float(std::string_view text) {
  const std::string plain = to_lower(replace_all(std::string(text), "_", ""));
  std::string_view digits = plain;
  const double sign = digits.starts_with('-') ? -1 : 1;
  if (digits.starts_with('-') || digits.starts_with('+')) digits.remove_prefix(1);
  if (digits == ".inf") return Node::real(sign * std::numeric_limits<double>::infinity());
  if (digits == ".nan") return Node::real(std::numeric_limits<double>::quiet_NaN());
  double value = 0;
  double base = 1;
  const std::vector<std::string> parts = split(digits, ':');
  for (size_t i = parts.size(); i-- > 0; base *= 60) value += std::atof(parts[i].c_str()) * base;
  return Node::real(sign * value);
}

}  // namespace

std::optional<Node> resolve_plain_scalar(std::string_view text) {
  if (looks_like_null(text)) return Node::null();
  if (looks_like_bool(text)) {
    const std::string word = to_lower(text);
    return Node::boolean(word == "yes" || word == "true" || word == "on");
  }
  const bool is_special_float =
      is_one_of(text, {".inf", ".Inf", ".INF", "-.inf", "-.Inf", "-.INF", "+.inf", "+.Inf", "+.INF",
                       ".nan", ".NaN", ".NAN"});
  if (is_special_float || is_decimal_float(text) || is_base_60_float(text)) {
    return resolve_float(text);
  }
  if (looks_like_int(text)) return resolve_int(text);
  if (looks_like_date(text)) {
    if (!is_real_date(text)) return std::nullopt;
    return Node::date(std::string(text));
  }
  return Node::string(std::string(text));
}

Node translate_text(std::string_view text) {
  constexpr size_t kLongestLiteral = 1000;  // characters, as upstream counts
  if (is_one_of(text, {"none", "None"})) return Node::null();
  if (is_one_of(text, {"true", "True"})) return Node::boolean(true);
  if (is_one_of(text, {"false", "False"})) return Node::boolean(false);
  size_t num_characters = 0;
  for (const char c : text) num_characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  if (num_characters <= kLongestLiteral) {
    if (std::optional<Node> value = parse_python_literal(text)) return std::move(*value);
  }
  return Node::string(std::string(text));
}

}  // namespace automodel::config
