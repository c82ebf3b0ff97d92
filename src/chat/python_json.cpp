#include "chat/python_json.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/text.h"
#include "core/utf8.h"

namespace automodel::chat {

namespace {

constexpr int kMostLevels = 960;

bool is_high_surrogate(char32_t c) {
  return c >= 0xD800 && c <= 0xDBFF;
}

bool is_low_surrogate(char32_t c) {
  return c >= 0xDC00 && c <= 0xDFFF;
}

/// Leaves one of the members with equal keys, at the first's place and with the last's value, as a
/// dict does.
void drop_repeated_keys(Json::Object& members) {
  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {},
                           [&](size_t i) -> const std::string& { return members[i].first; });
  std::vector<bool> is_dropped(members.size());
  bool drops = false;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && members[order[end]].first == members[order[begin]].first) {
      is_dropped[order[end++]] = true;
    }
    if (end - begin > 1) {
      members[order[begin]].second = std::move(members[order[end - 1]].second);
      drops = true;
    }
    begin = end;
  }
  if (!drops) return;
  Json::Object kept;
  for (size_t i = 0; i < members.size(); ++i) {
    if (!is_dropped[i]) kept.push_back(std::move(members[i]));
  }
  members = std::move(kept);
}

/// A number beyond what from_chars reads: infinite, or nothing but zeros of a double's bits.
double out_of_range(std::string_view text) {
  return std::strtod(std::string(text).c_str(), nullptr);
}

/// Reads values from the front of a text. What reads returns false where the text is wrong.
class Reader final {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::optional<Json> read() {
    Json value;
    skip_space();
    if (!read_value(value, 0)) return std::nullopt;
    skip_space();
    if (at_ != text_.size()) return std::nullopt;
    return value;
  }

 private:
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != text_.npos) ++at_;
  }

  bool read_value(Json& out, int level) {
    const auto word = [&](std::string_view name, Json value) {
      out = std::move(value);
      return take(name);
    };
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    switch (next()) {
      case '{':
        return level < kMostLevels && read_object(out, level + 1);
      case '[':
        return level < kMostLevels && read_array(out, level + 1);
      case '"': {
        std::string text;
        if (!read_string(text)) return false;
        out = Json(std::move(text));
        return true;
      }
      case 'n':
        return word("null", nullptr);
      case 't':
        return word("true", true);
      case 'f':
        return word("false", false);
      case 'N':
        return word("NaN", std::numeric_limits<double>::quiet_NaN());
      case 'I':
        return word("Infinity", kInfinity);
      default:
        return word("-Infinity", -kInfinity) || read_number(out);
    }
  }

  bool read_object(Json& out, int level) {
    Json::Object members;
    ++at_;
    skip_space();
    if (!take('}')) {
      do {
        skip_space();
        Json::Member& member = members.emplace_back();
        if (!read_string(member.first)) return false;
        skip_space();
        if (!take(':')) return false;
        skip_space();
        if (!read_value(member.second, level)) return false;
        skip_space();
      } while (take(','));
      if (!take('}')) return false;
    }
    drop_repeated_keys(members);
    out = Json(std::move(members));
    return true;
  }

  bool read_array(Json& out, int level) {
    Json::Array elements;
    ++at_;
    skip_space();
    if (!take(']')) {
      do {
        skip_space();
        if (!read_value(elements.emplace_back(), level)) return false;
        skip_space();
      } while (take(','));
      if (!take(']')) return false;
    }
    out = Json(std::move(elements));
    return true;
  }

  size_t skip_digits() {
    const size_t begin = at_;
    while (is_digit(next())) ++at_;
    return at_ - begin;
  }

  bool read_number(Json& out) {
    const size_t begin = at_;
    take('-');
    if (!take('0') && skip_digits() == 0) return false;
    bool is_integer = true;
    if (take('.')) {
      is_integer = false;
      if (skip_digits() == 0) return false;
    }
    if (take('e') || take('E')) {
      is_integer = false;
      if (!take('-')) take('+');
      if (skip_digits() == 0) return false;
    }
    out = number(text_.substr(begin, at_ - begin), is_integer);
    return true;
  }

  static Json number(std::string_view text, bool is_integer) {
    const char* end = text.data() + text.size();
    if (int64_t value = 0;
        is_integer && std::from_chars(text.data(), end, value).ec == std::errc()) {
      return Json(value);
    }
    double value = 0;
    if (std::from_chars(text.data(), end, value).ec != std::errc()) value = out_of_range(text);
    if (!is_integer) return Json(value);
    constexpr double kMost = std::numeric_limits<double>::max();
    return Json::big_integer(std::clamp(value, -kMost, kMost));
  }

  bool read_string(std::string& out) {
    if (!take('"')) return false;
    while (at_ < text_.size()) {
      const size_t begin = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 0x20) {
        ++at_;
      }
      out.append(text_, begin, at_ - begin);
      if (take('"')) return true;
      if (!take('\\') || !read_escape(out)) return false;
    }
    return false;
  }

  bool read_escape(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    if (take('u')) return read_code_point(out);
    const size_t place = kNames.find(next());
    if (place == std::string_view::npos) return false;
    out.push_back(kMeanings[place]);
    ++at_;
    return true;
  }

  bool read_code_point(std::string& out) {
    std::optional<char32_t> code = read_hex();
    if (!code) return false;
    if (is_high_surrogate(*code)) {
      const size_t behind = at_;
      const std::optional<char32_t> low = take("\\u") ? read_hex() : std::nullopt;
      if (low && is_low_surrogate(*low)) {
        code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
      } else {
        at_ = behind;
      }
    }
    append_utf8(out, *code);
    return true;
  }

  std::optional<char32_t> read_hex() {
    const std::string_view digits = text_.substr(at_, 4);
    uint32_t code = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (error != std::errc() || digits.size() != 4 || end != digits.data() + 4) {
      return std::nullopt;
    }
    at_ += 4;
    return static_cast<char32_t>(code);
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<Json> parse_python_json(std::string_view text) {
  return Reader(text).read();
}

}  // namespace automodel::chat
