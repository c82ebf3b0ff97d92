#include "config/python_literal.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/text.h"
#include "core/utf8.h"

namespace automodel::config {

namespace {

constexpr int kDeepest = 90;

bool is_identifier_part(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// A value and what the grammar needs to know of it.
struct Literal {
  Node node;
  bool is_hashable = true;       // may be a dict key or set element
  bool is_plain_number = false;  // a number without sign, which a sign may precede
  bool is_complex = false;
  std::string key;  // the text of the value as a dict key
};

using Result = std::optional<Literal>;

/// Recursive descent over the subset of Python that ast.literal_eval accepts. Every method returns
/// nothing where Python raises; the caller then keeps the text as it is.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<Node> parse() {
    if (text_.find('\0') != std::string_view::npos) return std::nullopt;
    while (at_ < text_.size() && (peek() == ' ' || peek() == '\t')) ++at_;
    if (!skip_leading_lines()) return std::nullopt;
    Result first = parse_expression();
    if (!first) return std::nullopt;
    skip_blanks();
    if (peek() == ',') {
      std::vector<Node> elements{std::move(first->node)};
      while (take(',')) {
        skip_blanks();
        if (is_line_end()) break;
        Result next = parse_expression();
        if (!next) return std::nullopt;
        elements.push_back(std::move(next->node));
        skip_blanks();
      }
      first->node = Node::sequence(std::move(elements));
    }
    if (!only_blank_lines_follow()) return std::nullopt;
    return std::move(first->node);
  }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool take(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  bool is_line_end() const { return at_ >= text_.size() || peek() == '\n' || peek() == '#'; }

  /// Blank lines before the expression; the expression's own line must not be indented then.
  bool skip_leading_lines() {
    while (true) {
      const size_t line = at_;
      skip_blanks();
      if (peek() == '#') {
        while (at_ < text_.size() && peek() != '\n') ++at_;
      }
      if (peek() == '\n') {
        ++at_;
        continue;
      }
      return line == 0 || text_[line - 1] != '\n' || at_ == line;
    }
  }

  bool only_blank_lines_follow() {
    while (at_ < text_.size()) {
      skip_blanks();
      if (peek() == '#') {
        while (at_ < text_.size() && peek() != '\n') ++at_;
      }
      if (at_ < text_.size() && !take('\n')) return false;
    }
    return true;
  }

  /// White space inside a line; inside brackets also line ends and comments.
  void skip_blanks() {
    while (at_ < text_.size()) {
      const char c = peek();
      if (c == ' ' || c == '\t' || c == '\f') {
        ++at_;
      } else if (c == '\\' && peek(1) == '\n' && at_ + 2 < text_.size()) {
        at_ += 2;
      } else if (depth_ > 0 && c == '\n') {
        ++at_;
      } else if (depth_ > 0 && c == '#') {
        while (at_ < text_.size() && peek() != '\n') ++at_;
      } else {
        return;
      }
    }
  }

  /// One literal. A value of no use here keeps its text, so that it can be printed.
  Result parse_expression() {
    skip_blanks();
    const size_t begin = at_;
    Result value = parse_sum();
    if (value && value->node.kind() == NodeKind::kForeign) {
      const std::string text(trim(text_.substr(begin, at_ - begin)));
      value->node.set_scalar_text(text, text, ScalarStyle::kArgument);
    }
    return value;
  }

  /// [sign] number [sign imaginary], or any other literal.
  Result parse_sum() {
    Result left = parse_signed();
    if (!left) return left;
    skip_blanks();
    if (peek() != '+' && peek() != '-') return left;
    ++at_;
    if (!left->node.is_number() || left->is_complex) return std::nullopt;
    skip_blanks();
    Result right = parse_atom();
    if (!right || !right->is_complex || !right->is_plain_number) return std::nullopt;
    return right;
  }

  Result parse_signed() {
    if (peek() != '+' && peek() != '-') return parse_atom();
    const bool is_negative = peek() == '-';
    ++at_;
    skip_blanks();
    Result value = parse_atom();
    if (!value || !value->is_plain_number) return std::nullopt;
    value->is_plain_number = false;
    if (is_negative) negate(*value);
    return value;
  }

  static void negate(Literal& value) {
    value.key = cat("-", value.key);
    if (value.is_complex) return;
    if (const std::optional<int64_t> whole = value.node.int_value()) {
      value.node = Node::integer(-*whole);
    } else if (value.node.kind() == NodeKind::kInt) {
      const bool is_lowest = value.key == "-9223372036854775808";
      value.node = is_lowest ? Node::integer(std::numeric_limits<int64_t>::min())
                             : big_integer(-*value.node.number(), value.key);
    } else {
      value.node = Node::real(-*value.node.number());
    }
  }

  Result parse_atom() {
    const char c = peek();
    if (c == '(') return parse_parenthesised();
    if (c == '[') return parse_list();
    if (c == '{') return parse_braces();
    if (c == '.' && peek(1) == '.' && peek(2) == '.') {
      at_ += 3;
      return Literal{Node::foreign("Python's ..."), true, false, false, "..."};
    }
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return parse_number();
    return parse_word_or_string();
  }

  Result parse_word_or_string() {
    size_t end = at_;
    while (end < text_.size() && is_identifier_part(text_[end])) ++end;
    const std::string_view word = text_.substr(at_, end - at_);
    const char next = end < text_.size() ? text_[end] : '\0';
    if (next == '\'' || next == '"') return parse_strings();
    if (word == "set") return parse_empty_set(end);
    std::optional<Node> value;
    if (word == "None") value = Node::null();
    if (word == "True") value = Node::boolean(true);
    if (word == "False") value = Node::boolean(false);
    if (!value) return std::nullopt;
    at_ = end;
    return Literal{std::move(*value), true, false, false, std::string(word)};
  }

  Result parse_empty_set(size_t end) {
    at_ = end;
    skip_blanks();
    if (!take('(')) return std::nullopt;
    ++depth_;
    skip_blanks();
    --depth_;
    if (!take(')')) return std::nullopt;
    return Literal{Node::foreign("a Python set"), false, false, false, ""};
  }

  /// Elements up to `close`; `has_comma` says whether one was seen.
  bool parse_elements(char close, std::vector<Literal>& elements, bool& has_comma) {
    if (++depth_ > kDeepest) return false;
    ++at_;  // the opening bracket
    skip_blanks();
    while (peek() != close) {
      Result element = parse_expression();
      if (!element) return false;
      elements.push_back(std::move(*element));
      skip_blanks();
      if (!take(',')) break;
      has_comma = true;
      skip_blanks();
    }
    --depth_;
    return take(close);
  }

  static std::vector<Node> nodes_of(std::vector<Literal> literals) {
    std::vector<Node> nodes;
    for (Literal& literal : literals) nodes.push_back(std::move(literal.node));
    return nodes;
  }

  Result parse_parenthesised() {
    std::vector<Literal> elements;
    bool has_comma = false;
    if (!parse_elements(')', elements, has_comma)) return std::nullopt;
    if (elements.size() == 1 && !has_comma) return std::move(elements[0]);
    bool is_hashable = true;
    std::string key = "(";
    for (size_t i = 0; i < elements.size(); ++i) {
      is_hashable = is_hashable && elements[i].is_hashable;
      key += cat(i == 0 ? "" : ", ", elements[i].key);
    }
    return Literal{Node::sequence(nodes_of(std::move(elements))), is_hashable, false, false,
                   key + ")"};
  }

  Result parse_list() {
    std::vector<Literal> elements;
    bool has_comma = false;
    if (!parse_elements(']', elements, has_comma)) return std::nullopt;
    return Literal{Node::sequence(nodes_of(std::move(elements))), false, false, false, ""};
  }

  /// A dict, or a set.
  Result parse_braces() {
    if (++depth_ > kDeepest) return std::nullopt;
    ++at_;
    skip_blanks();
    Node mapping = Node::mapping();
    bool is_set = false;
    bool is_first = true;
    while (peek() != '}') {
      Result key = parse_expression();
      if (!key || !key->is_hashable) return std::nullopt;
      skip_blanks();
      const bool has_value = take(':');
      if (is_first) is_set = !has_value;
      is_first = false;
      if (has_value == is_set) return std::nullopt;
      if (has_value) {
        Result value = parse_expression();
        if (!value) return std::nullopt;
        mapping.put(key->key, std::move(value->node));
        skip_blanks();
      }
      if (!take(',')) break;
      skip_blanks();
    }
    --depth_;
    if (!take('}')) return std::nullopt;
    if (is_set) return Literal{Node::foreign("a Python set"), false, false, false, ""};
    return Literal{std::move(mapping), false, false, false, ""};
  }

  /// Digits with single underscores between them. Appends them to `digits` without underscores.
  template <typename Accepts>
  bool take_digits(Accepts accepts, std::string& digits) {
    if (!accepts(peek())) return false;
    while (true) {
      while (accepts(peek())) digits.push_back(text_[at_++]);
      if (peek() != '_') return true;
      if (!accepts(peek(1))) return false;
      ++at_;
    }
  }

  Result parse_based(int base) {
    at_ += 2;
    if (peek() == '_') ++at_;
    std::string digits;
    const auto accepts = [base](char c) {
      if (is_digit(c)) return c - '0' < base;
      return base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'));
    };
    if (!take_digits(accepts, digits)) return std::nullopt;
    if (is_identifier_part(peek()) || peek() == '.') return std::nullopt;
    return integer_literal(digits, base);
  }

  /// An integer beyond int64_t, which keeps its decimal digits so that it can be printed.
  static Node big_integer(double approximate, const std::string& digits) {
    Node node = Node::big_integer(approximate);
    node.set_scalar_text(digits, digits, ScalarStyle::kArgument);
    return node;
  }

  /// An integer in a base. Nothing when it is beyond a double and not written in decimal digits.
  static Result integer_literal(const std::string& digits, int base) {
    int64_t whole = 0;
    double approximate = 0;
    bool is_exact = true;
    for (const char c : digits) {
      const int digit = is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
      is_exact = is_exact && !__builtin_mul_overflow(whole, base, &whole) &&
                 !__builtin_add_overflow(whole, digit, &whole);
      approximate = approximate * base + digit;
    }
    if (is_exact) return Literal{Node::integer(whole), true, true, false, cat(whole)};
    if (base == 10) {
      approximate = std::strtod(digits.c_str(), nullptr);  // rounds once
      return Literal{big_integer(approximate, digits), true, true, false, digits};
    }
    if (std::isinf(approximate)) return std::nullopt;
    std::array<char, std::numeric_limits<double>::max_exponent10 + 2> decimal{};
    std::snprintf(decimal.data(), decimal.size(), "%.0f", approximate);
    return Literal{big_integer(approximate, decimal.data()), true, true, false, decimal.data()};
  }

  Result parse_number() {
    const char second = static_cast<char>(peek(1) | 0x20);
    if (peek() == '0' && second == 'x') return parse_based(16);
    if (peek() == '0' && second == 'o') return parse_based(8);
    if (peek() == '0' && second == 'b') return parse_based(2);
    std::string digits;
    bool is_float = false;
    if (peek() != '.' && !take_digits(is_digit, digits)) return std::nullopt;
    const std::string whole = digits;
    if (peek() == '.') {
      is_float = true;
      digits.push_back(text_[at_++]);
      if (is_digit(peek()) && !take_digits(is_digit, digits)) return std::nullopt;
    }
    if ((peek() | 0x20) == 'e') {
      const bool has_sign = peek(1) == '+' || peek(1) == '-';
      if (!is_digit(peek(has_sign ? 2 : 1))) return std::nullopt;
      is_float = true;
      digits += text_.substr(at_, has_sign ? 2 : 1);
      at_ += has_sign ? 2 : 1;
      if (!take_digits(is_digit, digits)) return std::nullopt;
    }
    if ((peek() | 0x20) == 'j') {
      ++at_;
      if (is_identifier_part(peek())) return std::nullopt;
      return Literal{Node::foreign("a complex number"), true, true, true, digits + "j"};
    }
    if (is_identifier_part(peek())) return std::nullopt;
    if (is_float) {
      const double value = std::strtod(digits.c_str(), nullptr);
      return Literal{Node::real(value), true, true, false, shortest_repr(value)};
    }
    const bool is_zero = whole.find_first_not_of('0') == std::string::npos;
    if (whole.size() > 1 && whole[0] == '0' && !is_zero) return std::nullopt;
    return integer_literal(whole, 10);
  }

  /// One or more adjacent string literals, all text or all bytes.
  Result parse_strings() {
    std::string value;
    bool is_bytes = false;
    bool is_first = true;
    while (true) {
      size_t end = at_;
      while (end < text_.size() && is_identifier_part(text_[end])) ++end;
      const char quote = end < text_.size() ? text_[end] : '\0';
      if (quote != '\'' && quote != '"') {
        if (is_first || end != at_) return std::nullopt;
        break;
      }
      const std::string prefix = to_lower(text_.substr(at_, end - at_));
      const bool is_known = prefix.empty() || prefix == "r" || prefix == "u" || prefix == "b" ||
                            prefix == "br" || prefix == "rb";
      if (!is_known) return std::nullopt;
      const bool has_b = prefix.find('b') != std::string::npos;
      if (!is_first && has_b != is_bytes) return std::nullopt;
      is_bytes = has_b;
      is_first = false;
      at_ = end;
      if (!parse_string_body(prefix.find('r') != std::string::npos, is_bytes, value)) {
        return std::nullopt;
      }
      skip_blanks();
    }
    if (is_bytes) return Literal{Node::foreign("Python bytes"), true, false, false, value};
    Node node = Node::string(value);
    return Literal{std::move(node), true, false, false, std::move(value)};
  }

  bool parse_string_body(bool is_raw, bool is_bytes, std::string& out) {
    const char quote = peek();
    const bool is_triple = peek(1) == quote && peek(2) == quote;
    at_ += is_triple ? 3 : 1;
    while (at_ < text_.size()) {
      const char c = peek();
      if (is_bytes && static_cast<unsigned char>(c) >= 0x80) return false;
      if (c == quote && (!is_triple || (peek(1) == quote && peek(2) == quote))) {
        at_ += is_triple ? 3 : 1;
        return true;
      }
      if (c == '\n' && !is_triple) return false;
      if (c != '\\') {
        out.push_back(c);
        ++at_;
      } else if (is_raw) {
        if (at_ + 1 >= text_.size()) return false;
        out += text_.substr(at_, 2);
        at_ += 2;
      } else if (!parse_escape(is_bytes, out)) {
        return false;
      }
    }
    return false;
  }

  bool parse_escape(bool is_bytes, std::string& out) {
    if (at_ + 1 >= text_.size()) return false;
    const char c = text_[at_ + 1];
    at_ += 2;
    constexpr std::string_view kNames = "\\'\"abfnrtv";
    constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t i = kNames.find(c); i != std::string_view::npos) {
      out.push_back(kValues[i]);
      return true;
    }
    if (c == '\n') return true;
    if (c == 'x') return parse_code(2, out);
    if (c == 'u' && !is_bytes) return parse_code(4, out);
    if (c == 'U' && !is_bytes) return parse_code(8, out);
    if (c == 'N' && !is_bytes) return false;  // names of characters: left as it is written
    if (c >= '0' && c <= '7') {
      uint32_t code = static_cast<uint32_t>(c - '0');
      for (int i = 0; i < 2 && peek() >= '0' && peek() <= '7'; ++i) {
        code = code * 8 + static_cast<uint32_t>(text_[at_++] - '0');
      }
      append_utf8(out, code);
      return true;
    }
    out.push_back('\\');
    out.push_back(c);
    return true;
  }

  bool parse_code(int num_digits, std::string& out) {
    uint32_t code = 0;
    for (int i = 0; i < num_digits; ++i) {
      const char c = static_cast<char>(peek() | 0x20);
      const bool is_letter = c >= 'a' && c <= 'f';
      if (!is_digit(peek()) && !is_letter) return false;
      code = code * 16 + static_cast<uint32_t>(is_letter ? c - 'a' + 10 : peek() - '0');
      ++at_;
    }
    const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
    if (code > 0x10FFFF || is_surrogate) return false;
    append_utf8(out, code);
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<Node> parse_python_literal(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace automodel::config
