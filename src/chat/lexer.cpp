#include "chat/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "chat/characters.h"
#include "core/text.h"
#include "core/utf8.h"

namespace automodel::chat {

namespace {

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_identifier_part(char32_t c) {
  return c == '_' || is_alphanumeric(c);
}

bool is_decimal_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer final {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_root();
    add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool starts(std::string_view text) const { return rest().starts_with(text); }

  [[noreturn]] void fail(const std::string& text) const { throw Failure(text, line_, column()); }

  int column() const { return column_; }

  /// Moves on, counting lines.
  void advance_to(size_t target) {
    for (; at_ < target; ++at_) {
      if (source_[at_] == '\n') {
        ++line_;
        column_ = 1;
      } else if ((static_cast<unsigned char>(source_[at_]) & 0xC0) != 0x80) {
        ++column_;
      }
    }
  }

  void skip_space() {
    size_t end = at_;
    for (size_t behind = end; behind < source_.size(); end = behind) {
      if (!is_space(next_code_point(source_, behind))) break;
    }
    advance_to(end);
  }

  void add(TokenType type, std::string text, Value number = {}) {
    tokens_.push_back({type, std::move(text), number, line_, column()});
  }

  /// The end of a `{% raw %}` tag at this byte, and its sign; none when there is no such tag.
  struct Tag {
    size_t end;
    char sign;  // '-', '+' or 0
  };
  std::optional<Tag> raw_tag(size_t at, std::string_view word, bool is_end) const {
    Tag tag{at + 2, 0};
    const auto space = [&] {
      while (tag.end < source_.size()) {
        size_t behind = tag.end;
        if (!is_space(next_code_point(source_, behind))) break;
        tag.end = behind;
      }
    };
    const auto take = [&](std::string_view text) {
      if (!std::string_view(source_).substr(tag.end).starts_with(text)) return false;
      tag.end += text.size();
      return true;
    };
    if (tag.end < source_.size() && (source_[tag.end] == '-' || source_[tag.end] == '+')) {
      tag.sign = source_[tag.end++];
    }
    space();
    if (!take(word)) return std::nullopt;
    space();
    if (take("-%}")) {
      space();
    } else if (is_end && take("+%}")) {
    } else if (take("%}")) {
      if (is_end) take("\n");
    } else {
      return std::nullopt;
    }
    return tag;
  }

  /// Data up to a tag, stripped as the tag's sign and lstrip_blocks ask for.
  void add_data(size_t end, char sign, bool is_variable) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      text = stripped(text, false, true);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((begin > 0 || line_starting_) && stripped(text.substr(begin), true, false).empty()) {
        text = text.substr(0, begin);
      }
    }
    if (!text.empty()) add(TokenType::kData, std::string(text));
  }

  void set_line_starting() { line_starting_ = at_ > 0 && source_[at_ - 1] == '\n'; }

  void read_root() {
    size_t begin = at_;
    for (;; ++begin) {
      begin = source_.find('{', begin);
      if (begin == std::string::npos || begin + 1 >= source_.size()) {
        add(TokenType::kData, std::string(rest()));
        advance_to(source_.size());
        return;
      }
      const char next = source_[begin + 1];
      if (next == '%' || next == '{' || next == '#') break;
    }
    const char kind = source_[begin + 1];
    if (kind == '%') {
      if (const auto tag = raw_tag(begin, "raw", false)) return read_raw(begin, *tag);
    }
    size_t inside = begin + 2;
    char sign = 0;
    if (inside < source_.size() && (source_[inside] == '-' || source_[inside] == '+')) {
      sign = source_[inside++];
    }
    add_data(begin, sign, kind == '{');
    advance_to(begin);
    if (kind == '#') {
      advance_to(inside);
      read_comment();
    } else {
      add(kind == '%' ? TokenType::kBlockBegin : TokenType::kVariableBegin, "");
      advance_to(inside);
      read_code(kind == '%');
    }
    set_line_starting();
  }

  void read_raw(size_t begin, Tag tag) {
    add_data(begin, tag.sign, false);
    advance_to(tag.end);
    set_line_starting();
    if (at_ == source_.size()) return;  // Jinja misses the end only where something follows
    for (size_t at = at_;; at += 2) {
      at = source_.find("{%", at);
      if (at == std::string::npos) fail("Missing end of raw directive");
      if (const auto end = raw_tag(at, "endraw", true)) {
        add_data(at, end->sign, false);
        advance_to(end->end);
        set_line_starting();
        return;
      }
    }
  }

  void read_comment() {
    if (at_ == source_.size()) return;  // as for raw
    // "-#}" begins one byte before its "#}", and so may the sign that opened the comment.
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("Missing end of comment tag");
    const bool strips = end > at_ && source_[end - 1] == '-';
    const bool keeps = end > at_ && source_[end - 1] == '+';
    advance_to(end + 2);
    if (strips) {
      skip_space();
    } else if (!keeps && starts("\n")) {
      advance_to(at_ + 1);
    }
  }

  /// Moves behind the tag's end when it is here.
  bool take_end(bool is_block) {
    const std::string_view end = is_block ? "%}" : "}}";
    const bool strips = starts("-") && rest().substr(1).starts_with(end);
    const bool keeps = is_block && starts("+") && rest().substr(1).starts_with(end);
    if (!strips && !keeps && !starts(end)) return false;
    add(is_block ? TokenType::kBlockEnd : TokenType::kVariableEnd, "");
    advance_to(at_ + end.size() + (strips || keeps ? 1 : 0));
    if (strips) {
      skip_space();
    } else if (is_block && !keeps && starts("\n")) {
      advance_to(at_ + 1);
    }
    return true;
  }

  void read_code(bool is_block) {
    std::string open;  // closing brackets that are waited for
    for (;;) {
      if (at_ >= source_.size()) return;  // the parser says what is missing
      if (open.empty() && take_end(is_block)) return;
      const size_t before = at_;
      skip_space();
      if (at_ != before) continue;
      if (read_number() || read_name() || read_string()) continue;
      read_operator(open);
    }
  }

  /// Digits with single underscores between them, from a byte on; its end.
  size_t digits_end(size_t from) const {
    size_t end = from;
    while (end < source_.size() &&
           (is_decimal_digit(source_[end]) ||
            (source_[end] == '_' && end > from && source_[end - 1] != '_' &&
             end + 1 < source_.size() && is_decimal_digit(source_[end + 1])))) {
      ++end;
    }
    return end;
  }

  bool read_number() {
    if (!is_decimal_digit(source_[at_])) return false;
    const bool follows_dot = at_ > 0 && source_[at_ - 1] == '.';
    const size_t whole = digits_end(at_);
    size_t end = whole;
    if (!follows_dot) {
      if (end + 1 < source_.size() && source_[end] == '.' && is_decimal_digit(source_[end + 1])) {
        end = digits_end(end + 1);
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
          ++exponent;
        }
        if (exponent < source_.size() && is_decimal_digit(source_[exponent])) {
          end = digits_end(exponent);
        }
      }
    }
    if (end > whole) {
      add_float(end);
    } else {
      add_integer(whole);
    }
    return true;
  }

  std::string without_underscores(size_t end) const {
    return replace_all(source_.substr(at_, end - at_), "_", "");
  }

  void add_float(size_t end) {
    const std::string text = without_underscores(end);
    double number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc::result_out_of_range) fail(cat("the number ", text, " is out of range"));
    add(TokenType::kFloat, text, Value::from(number));
    advance_to(end);
  }

  void add_integer(size_t end) {
    int base = 10;
    size_t begin = at_;
    if (source_[at_] == '0') {
      const char letter = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 32) : 0;
      const int prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
      const size_t behind = prefixed == 0 ? 0 : based_digits_end(at_ + 2, prefixed);
      if (behind > at_ + 2) {
        base = prefixed;
        begin = at_ + 2;
        end = behind;
      } else {
        // 007 is 00 and 7, as for jinja2.
        end = at_;
        while (end < source_.size() &&
               (source_[end] == '0' ||
                (source_[end] == '_' && end + 1 < source_.size() && source_[end + 1] == '0'))) {
          ++end;
        }
      }
    }
    const std::string text = replace_all(source_.substr(begin, end - begin), "_", "");
    int64_t number = 0;
    const auto [stop, error] =
        std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (error != std::errc()) fail(cat("the integer ", text, " does not fit into 64 bits"));
    add(TokenType::kInteger, text, Value::from(number));
    advance_to(end);
  }

  size_t based_digits_end(size_t from, int base) const {
    size_t end = from;
    for (; end < source_.size(); ++end) {
      const size_t digit = source_[end] == '_' && end + 1 < source_.size() ? end + 1 : end;
      const char c = static_cast<char>(source_[digit] | 32);
      const int value = is_decimal_digit(source_[digit]) ? source_[digit] - '0'
                        : c >= 'a' && c <= 'f'           ? c - 'a' + 10
                                                         : 99;
      if (value >= base) break;
      end = digit;
    }
    return end;
  }

  bool read_name() {
    size_t end = at_;
    for (size_t behind = end; behind < source_.size(); end = behind) {
      if (!is_identifier_part(next_code_point(source_, behind))) break;
    }
    if (end == at_) return false;
    size_t first = at_;
    const char32_t c = next_code_point(source_, first);
    if (c != '_' && !is_alpha(c)) fail("Invalid character in identifier");
    add(TokenType::kName, source_.substr(at_, end - at_));
    advance_to(end);
    return true;
  }

  bool read_string() {
    const char quote = source_[at_];
    if (quote != '\'' && quote != '"') return false;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return false;
    add(TokenType::kString, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance_to(end + 1);
    return true;
  }

  /// Hexadecimal digits of an escape.
  void append_code(std::string& out, std::string_view text, size_t& at, size_t num_digits) const {
    const std::string_view digits = text.substr(at, num_digits);
    uint32_t code = 0;
    const auto [stop, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() < num_digits || error != std::errc() ||
        stop != digits.data() + digits.size()) {
      fail("a truncated \\x, \\u or \\U escape in a string");
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      fail("an escape in a string is no character");
    }
    append_utf8(out, code);
    at += num_digits;
  }

  std::string unescape(std::string_view text) const {
    constexpr std::string_view kLetters = "abfnrtv\\'\"";
    constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    std::string out;
    for (size_t at = 0; at < text.size();) {
      if (text[at] != '\\') {
        out.push_back(text[at++]);
        continue;
      }
      const char letter = text[++at];
      const size_t known = kLetters.find(letter);
      ++at;
      if (known != std::string_view::npos) {
        out.push_back(kMeanings[known]);
      } else if (letter == '\n') {
      } else if (letter == 'x' || letter == 'u' || letter == 'U') {
        append_code(out, text, at, letter == 'x' ? 2 : letter == 'u' ? 4 : 8);
      } else if (letter >= '0' && letter <= '7') {
        uint32_t code = static_cast<uint32_t>(letter - '0');
        for (int i = 0; i < 2 && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++i) {
          code = code * 8 + static_cast<uint32_t>(text[at++] - '0');
        }
        append_utf8(out, code);
      } else if (letter == 'N') {
        fail("\\N escapes are not known here");
      } else {
        out.push_back('\\');
        out.push_back(letter);
      }
    }
    return out;
  }

  void read_operator(std::string& open) {
    constexpr std::array<std::string_view, 6> kLong = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    size_t size = 0;
    for (const std::string_view symbol : kLong) {
      if (starts(symbol)) size = 2;
    }
    if (size == 0 && kShort.find(source_[at_]) != std::string_view::npos) size = 1;
    if (size == 0) {
      size_t behind = at_;
      next_code_point(source_, behind);
      fail(cat("unexpected char '", source_.substr(at_, behind - at_), "' at ",
               count_code_points(std::string_view(source_).substr(0, at_))));
    }
    const char symbol = source_[at_];
    if (symbol == '(') open.push_back(')');
    if (symbol == '[') open.push_back(']');
    if (symbol == '{') open.push_back('}');
    if (symbol == ')' || symbol == ']' || symbol == '}') {
      if (open.empty()) fail(cat("unexpected '", symbol, "'"));
      if (open.back() != symbol)
        fail(cat("unexpected '", symbol, "', expected '", open.back(), "'"));
      open.pop_back();
    }
    add(TokenType::kOperator, source_.substr(at_, size));
    advance_to(at_ + size);
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  int column_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::kName:
    case TokenType::kOperator:
      return token.text;
    case TokenType::kData:
      return "template data / text";
    case TokenType::kVariableBegin:
      return "begin of print statement";
    case TokenType::kVariableEnd:
      return "end of print statement";
    case TokenType::kBlockBegin:
      return "begin of statement block";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kString:
      return "string";
    case TokenType::kInteger:
      return "integer";
    case TokenType::kFloat:
      return "float";
    case TokenType::kEnd:
      return "end of template";
  }
  return "";
}

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace automodel::chat
