// Oniguruma's syntax in PCRE2's words. The two agree on most of what tokenizers write; what
// differs:
//   \s \w \d \h \b     other character sets (\s without U+180E, \w with marks, \h hex digits)
//   \v \uHHHH \O {,n}  other spellings
//   X{n,m}+            a repeated repetition, not a possessive one
//   (?m) (?i)x|y       (?m) is dotall; an option in the middle holds for the rest of its group
//   [a[bc]&&[d]]       classes nest and intersect
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "tokenizers/regex.h"
#include "tokenizers/regex_classes.h"

namespace automodel::tokenizers {

namespace {

bool is_hex_digit(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// A character class while it is read: a class body, and whole patterns for one character that a
/// body cannot hold.
struct ClassParts {
  std::string body;
  std::vector<std::string> alternatives;
  bool is_negated = false;

  std::string pattern() const {
    if (alternatives.empty()) {
      if (body.empty()) return is_negated ? "(?s:.)" : "(?!)";
      return cat("[", is_negated ? "^" : "", body, "]");
    }
    std::string any = body.empty() ? "" : cat("[", body, "]");
    for (const std::string& alternative : alternatives) {
      if (!any.empty()) any += "|";
      any += alternative;
    }
    return is_negated ? cat("(?:(?!", any, ")(?s:.))") : cat("(?:", any, ")");
  }
};

class Translator final {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  std::string run() {
    groups_.push_back({0, 0});
    while (at_ < in_.size()) piece();
    if (groups_.size() != 1) throw InputError("a group is not closed");
    close_options();
    return std::move(out_);
  }

 private:
  struct Property {
    std::string body;  // of a character class
    bool is_negated = false;

    /// "" when a class body cannot hold the negation.
    std::string class_body() const {
      if (!is_negated) return body;
      if (body == kSpace) return kNotSpace;
      const bool is_single = body.starts_with("\\p{") && body.find('}') == body.size() - 1;
      return is_single ? cat("\\P", body.substr(2)) : "";
    }
  };

  struct Group {
    size_t start;      // where it begins in out_
    int open_options;  // option groups to close with it
  };

  bool has(std::string_view text) const { return in_.substr(at_, text.size()) == text; }
  bool done() const { return at_ >= in_.size(); }

  /// Writes one atom; a quantifier that follows belongs to it.
  void atom(std::string_view text) {
    atom_start_ = out_.size();
    can_repeat_ = true;
    is_repeated_ = false;
    out_ += text;
  }

  void piece() {
    const char c = in_[at_];
    if (c == '\\') {
      escape();
    } else if (c == '[') {
      ++at_;
      atom(char_class(0).pattern());
    } else if (c == '(') {
      open_group();
    } else if (c == ')') {
      close_group();
    } else if (c == '*' || c == '+' || c == '?') {
      ++at_;
      quantify(std::string(1, c), true);
    } else if (c == '{' && interval()) {
      return;
    } else if (c == '|' || c == '^' || c == '$') {
      ++at_;
      out_.push_back(c);
      can_repeat_ = c != '|';
      atom_start_ = out_.size() - 1;
      is_repeated_ = false;
    } else {
      literal(c);
    }
  }

  void literal(char c) {
    size_t size = 1;
    while (at_ + size < in_.size() &&
           (static_cast<unsigned char>(in_[at_ + size]) & 0xC0) == 0x80 &&
           static_cast<unsigned char>(c) >= 0xC0) {
      ++size;
    }
    atom(c == '{' || c == '}' ? cat("\\", c) : std::string(in_.substr(at_, size)));
    at_ += size;
  }

  /// Adds a quantifier to the last atom; a second one repeats the repetition.
  void quantify(const std::string& quantifier, bool may_be_possessive) {
    if (!can_repeat_) throw InputError(cat("nothing to repeat before '", quantifier, "'"));
    if (is_repeated_) {
      out_.insert(atom_start_, "(?:");
      out_ += ")";
    }
    out_ += quantifier;
    is_repeated_ = true;
    if (done()) return;
    const bool is_fixed = !may_be_possessive && quantifier.find(',') == std::string::npos;
    if ((in_[at_] == '?' && !is_fixed) || (in_[at_] == '+' && may_be_possessive)) {
      out_.push_back(in_[at_++]);
    }
  }

  bool interval() {
    size_t i = at_ + 1;
    std::string low;
    std::string high;
    bool has_comma = false;
    while (i < in_.size() && is_digit(in_[i])) low.push_back(in_[i++]);
    if (i < in_.size() && in_[i] == ',') {
      has_comma = true;
      ++i;
      while (i < in_.size() && is_digit(in_[i])) high.push_back(in_[i++]);
    }
    if (i >= in_.size() || in_[i] != '}' || (low.empty() && high.empty())) return false;
    at_ = i + 1;
    if (low.empty()) low = "0";
    quantify(has_comma ? cat("{", low, ",", high, "}") : cat("{", low, "}"), false);
    return true;
  }

  void open_group() {
    if (groups_.size() > 200) throw InputError("groups are nested deeper than 200");
    if (in_.substr(at_, 2) == "(*") throw InputError("callouts '(*' are not supported");
    groups_.push_back({out_.size(), 0});
    can_repeat_ = false;
    if (!has("(?")) {
      out_.push_back('(');
      ++at_;
      return;
    }
    for (const std::string_view plain : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (!has(plain)) continue;
      out_ += plain;
      at_ += plain.size();
      return;
    }
    if (has("(?#")) {
      const size_t end = in_.find(')', at_);
      if (end == std::string_view::npos) throw InputError("a comment is not closed");
      at_ = end + 1;
      groups_.pop_back();
      return;
    }
    if (has("(?<")) {
      const size_t end = in_.find('>', at_);
      if (end == std::string_view::npos) throw InputError("a group name is not closed");
      out_ += in_.substr(at_, end + 1 - at_);
      at_ = end + 1;
      return;
    }
    options();
  }

  void options() {
    size_t i = at_ + 2;
    std::string letters;
    while (i < in_.size() && (is_letter(in_[i]) || in_[i] == '-')) {
      const char c = in_[i++];
      if (c != 'i' && c != 'm' && c != 's' && c != '-') {
        throw InputError(cat("the option '", c, "' is not supported"));
      }
      letters.push_back(c == 'm' ? 's' : c);
    }
    if (i >= in_.size() || (in_[i] != ':' && in_[i] != ')')) {
      throw InputError(cat("the group '", in_.substr(at_, i + 1 - at_), "' is not supported"));
    }
    out_ += cat("(?", letters, ":");
    if (in_[i] == ')') {
      groups_.pop_back();
      ++groups_.back().open_options;
    }
    at_ = i + 1;
  }

  void close_options() {
    for (; groups_.back().open_options > 0; --groups_.back().open_options) out_ += ")";
  }

  void close_group() {
    if (groups_.size() == 1) throw InputError("a ')' closes no group");
    close_options();
    out_ += ")";
    ++at_;
    atom_start_ = groups_.back().start;
    groups_.pop_back();
    can_repeat_ = true;
    is_repeated_ = false;
  }

  /// Reads `{Name}` behind \p or \P. `at_` is on p.
  Property property() {
    Property result;
    result.is_negated = in_[at_] == 'P';
    if (at_ + 1 >= in_.size() || in_[at_ + 1] != '{') throw InputError("\\p is without {name}");
    const size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) throw InputError("\\p{ is not closed");
    std::string name(in_.substr(at_ + 2, end - at_ - 2));
    at_ = end + 1;
    if (!name.empty() && name[0] == '^') {
      result.is_negated = !result.is_negated;
      name.erase(0, 1);
    }
    result.body = property_body(name);
    return result;
  }

  /// The code point of \xHH, \x{H} or \uHHHH as PCRE2 writes it. `at_` is on x or u.
  std::string hexadecimal() {
    std::string digits;
    if (in_[at_] == 'x' && at_ + 1 < in_.size() && in_[at_ + 1] == '{') {
      const size_t end = in_.find('}', at_);
      if (end == std::string_view::npos) throw InputError("\\x{ is not closed");
      digits = in_.substr(at_ + 2, end - at_ - 2);
      at_ = end + 1;
    } else {
      const size_t wanted = in_[at_] == 'x' ? 2 : 4;
      ++at_;
      while (digits.size() < wanted && !done() && is_hex_digit(in_[at_])) {
        digits.push_back(in_[at_++]);
      }
      if (wanted == 2 && digits.size() == 2 && digits[0] >= '8') {
        throw InputError(cat("the single byte \\x", digits, " is no character of UTF-8"));
      }
    }
    return cat("\\x{", digits, "}");
  }

  /// An escape that stands for one character, the same inside and outside of classes; "" when the
  /// escape at `at_` (behind the backslash) is another.
  std::string character_escape() {
    const char c = in_[at_];
    if (c == 'x' || c == 'u') return hexadecimal();
    if (c == 'C' || c == 'M') throw InputError(cat("\\", c, " is not supported"));
    if (c == 'v') {
      ++at_;
      return "\\x{b}";
    }
    if (std::string_view("tnrfae").find(c) != std::string_view::npos) {
      ++at_;
      return cat("\\", c);
    }
    if (static_cast<unsigned char>(c) < 0x80 && !is_letter(c) && !is_digit(c)) {
      ++at_;
      return cat("\\", c);
    }
    return "";
  }

  /// \s \S \w \W \d \D \h \H \p \P; no body when the escape is another.
  Property set_escape() {
    const char c = in_[at_];
    if (c == 'p' || c == 'P') return property();
    Property result;
    const char lower = static_cast<char>(c | 0x20);
    result.body = lower == 's'   ? kSpace
                  : lower == 'w' ? kWord
                  : lower == 'd' ? "\\p{Nd}"
                  : lower == 'h' ? kHex
                                 : "";
    if (!result.body.empty() && is_letter(c)) {
      ++at_;
      result.is_negated = c != lower;
    } else {
      result.body.clear();
    }
    return result;
  }

  void escape() {
    ++at_;
    if (done()) throw InputError("it ends in a backslash");
    if (const Property set = set_escape(); !set.body.empty()) {
      const char* extra = set.body == kWord ? kLatinNumbers : "";
      return atom(cat(set.is_negated ? "[^" : "[", set.body, extra, "]"));
    }
    if (const std::string one = character_escape(); !one.empty()) return atom(one);
    const char c = in_[at_++];
    const std::string word = cat("[", kWord, kLatinNumbers, "]");
    switch (c) {
      case 'O':
        return atom("(?s:.)");
      case 'b':
        return atom(cat("(?:(?<=", word, ")(?!", word, ")|(?<!", word, ")(?=", word, "))"));
      case 'B':
        return atom(cat("(?:(?<=", word, ")(?=", word, ")|(?<!", word, ")(?!", word, "))"));
      case 'y':
      case 'Y':
      case 'k':
      case 'g':
      case 'X':
        throw InputError(cat("\\", c, " is not supported"));
      default:
        break;
    }
    const bool is_known = std::string_view("AzZGRNK").find(c) != std::string_view::npos;
    if (is_known || is_digit(c)) return atom(cat("\\", c));
    atom(std::string(1, c));  // Oniguruma takes an unknown escape for the character
  }

  /// Reads a class behind its '['.
  ClassParts char_class(int depth) {
    if (depth > 20) throw InputError("character classes are nested deeper than 20");
    ClassParts parts;
    if (has("^")) {
      parts.is_negated = true;
      ++at_;
    }
    bool is_first = true;
    bool may_start_range = false;  // the last item is a single character
    for (;; is_first = false) {
      if (done()) throw InputError("a character class is not closed");
      const char c = in_[at_];
      if (c == ']' && !is_first) {
        ++at_;
        return parts;
      }
      if (has("&&")) {
        at_ += 2;
        return intersect(std::move(parts), depth);
      }
      if (c == '[') {
        nested_class(parts, depth);
        may_start_range = false;
      } else if (c == '-') {
        may_start_range = dash(parts, may_start_range);
      } else {
        may_start_range = class_item(parts);
      }
    }
  }

  /// A '-' inside a class; true when it makes a range whose end is to follow.
  bool dash(ClassParts& parts, bool may_start_range) {
    ++at_;
    const std::string_view next = in_.substr(at_, 2);
    const bool is_set = next.size() == 2 && next[0] == '\\' &&
                        std::string_view("sSwWdDhHpP").find(next[1]) != std::string_view::npos;
    const bool ends = next.empty() || next[0] == ']' || next[0] == '[' || next == "&&" || is_set;
    if (!may_start_range || ends) {
      parts.body += "\\-";
      return false;
    }
    parts.body += "-";
    class_item(parts);
    return false;
  }

  static void add_set(ClassParts& parts, const Property& set) {
    const std::string body = set.class_body();
    if (body.empty()) {
      parts.alternatives.push_back(cat("[^", set.body, "]"));
    } else {
      parts.body += body;
    }
  }

  void nested_class(ClassParts& parts, int depth) {
    if (has("[:")) {
      const size_t end = in_.find(":]", at_);
      if (end != std::string_view::npos && end - at_ < 16) {
        std::string_view name = in_.substr(at_ + 2, end - at_ - 2);
        Property set;
        set.is_negated = name.starts_with("^");
        if (set.is_negated) name.remove_prefix(1);
        set.body = posix_class_body(name);
        if (set.body.empty()) throw InputError(cat("unknown class '[:", name, ":]'"));
        add_set(parts, set);
        at_ = end + 2;
        return;
      }
    }
    ++at_;
    ClassParts inner = char_class(depth + 1);
    if (!inner.is_negated && inner.alternatives.empty()) {
      parts.body += inner.body;
    } else {
      parts.alternatives.push_back(inner.pattern());
    }
  }

  /// `left && ...` up to the closing ']'.
  ClassParts intersect(ClassParts left, int depth) {
    ClassParts result;
    result.is_negated = left.is_negated;
    left.is_negated = false;
    ClassParts right = rest_of_class(depth);
    result.alternatives.push_back(cat("(?:(?=", left.pattern(), ")", right.pattern(), ")"));
    return result;
  }

  ClassParts rest_of_class(int depth) {
    // A '^' here is a character of the class, not a negation.
    if (!has("^")) return char_class(depth + 1);
    ++at_;
    ClassParts parts = char_class(depth + 1);
    parts.body += "\\^";
    return parts;
  }

  /// One character or set inside a class; true for a single character.
  bool class_item(ClassParts& parts) {
    const char c = in_[at_];
    if (c != '\\') {
      size_t size = 1;
      while (static_cast<unsigned char>(c) >= 0xC0 && at_ + size < in_.size() &&
             (static_cast<unsigned char>(in_[at_ + size]) & 0xC0) == 0x80) {
        ++size;
      }
      if (size == 1 && std::string_view("[]^").find(c) != std::string_view::npos) {
        parts.body.push_back('\\');
      }
      parts.body += in_.substr(at_, size);
      at_ += size;
      return true;
    }
    ++at_;
    if (done()) throw InputError("it ends in a backslash");
    if (const Property set = set_escape(); !set.body.empty()) {
      add_set(parts, set);
      return false;
    }
    if (const std::string one = character_escape(); !one.empty()) {
      parts.body += one;
      return true;
    }
    const char letter = in_[at_++];
    if (letter == 'b') {
      parts.body += "\\x{8}";
    } else if (is_digit(letter)) {
      parts.body += cat("\\", letter);
    } else {
      parts.body.push_back(letter);
    }
    return true;
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  std::vector<Group> groups_;
  size_t atom_start_ = 0;
  bool can_repeat_ = false;
  bool is_repeated_ = false;
};

}  // namespace

std::string translate_oniguruma(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace automodel::tokenizers
