#include "chat/text_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "chat/characters.h"
#include "chat/operators.h"
#include "chat/parameters.h"
#include "chat/text_methods.h"
#include "core/text.h"
#include "core/utf8.h"

namespace automodel::chat {

namespace {

constexpr int64_t kMaxWidth = 1 << 16;

/// A format's fields: [[fill]align][sign][#][0][width][,][.precision][type].
struct Spec {
  std::string fill = " ";
  char align = 0;
  char sign = 0;
  bool is_alternate = false;
  char grouping = 0;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

int64_t read_number(std::string_view text, size_t& at) {
  int64_t number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + (text[at++] - '0');
    if (number > kMaxWidth) throw Failure("a width or precision of a format is too large");
  }
  return number;
}

bool is_align(char c) {
  return c == '<' || c == '>' || c == '=' || c == '^';
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  bool has_fill = false;
  size_t behind = 0;
  if (!text.empty()) next_code_point(text, behind);
  if (behind > 0 && behind < text.size() && is_align(text[behind])) {
    spec.fill = text.substr(0, behind);
    has_fill = true;
    spec.align = text[behind];
    at = behind + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[at++];
  }
  const auto take = [&](std::string_view any) {
    return at < text.size() && any.find(text[at]) != std::string_view::npos ? text[at++] : char{0};
  };
  spec.sign = take("+- ");
  spec.is_alternate = take("#") != 0;
  if (take("0") != 0) {
    if (!has_fill) spec.fill = "0";
    if (spec.align == 0) spec.align = '=';
  }
  spec.width = read_number(text, at);
  spec.grouping = take(",_");
  if (take(".") != 0) {
    if (at >= text.size() || text[at] < '0' || text[at] > '9') {
      throw Failure("Format specifier missing precision");
    }
    spec.precision = read_number(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) throw Failure(cat("Invalid format specifier '", text, "'"));
  return spec;
}

std::string padded(Run& run, const std::string& prefix, const std::string& body, const Spec& spec,
                   char fallback) {
  const int64_t missing = spec.width - count_code_points(prefix) - count_code_points(body);
  if (missing <= 0) return prefix + body;
  run.step_bytes(static_cast<size_t>(missing));
  const char align = spec.align == 0 ? fallback : spec.align;
  const auto fill = [&](int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  if (align == '<') return prefix + body + fill(missing);
  if (align == '^') return fill(missing / 2) + prefix + body + fill(missing - missing / 2);
  if (align == '=') return prefix + fill(missing) + body;
  return fill(missing) + prefix + body;
}

std::string grouped(const std::string& digits, char separator, size_t size) {
  if (separator == 0) return digits;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out;
}

std::string unsigned_digits(uint64_t number, unsigned base, bool is_upper) {
  const char* letters = is_upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do {
    out.insert(out.begin(), letters[number % base]);
    number /= base;
  } while (number > 0);
  return out;
}

std::string printed(const char* format, int precision, double value) {
  const int size = std::snprintf(nullptr, 0, format, precision, value);
  std::string out(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), format, precision, value);
  out.pop_back();
  return out;
}

/// |value| by a float's format type.
std::string float_digits(double value, const Spec& spec) {
  const double size = std::abs(value);
  const bool is_upper = spec.type == 'F' || spec.type == 'E' || spec.type == 'G';
  if (std::isnan(size)) return is_upper ? "NAN" : "nan";
  if (std::isinf(size)) return is_upper ? "INF" : "inf";
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  switch (spec.type) {
    case 'f':
    case 'F':
      return printed("%.*f", precision, size);
    case 'e':
      return printed("%.*e", precision, size);
    case 'E':
      return printed("%.*E", precision, size);
    case 'g':
      return printed(spec.is_alternate ? "%#.*g" : "%.*g", precision, size);
    case 'G':
      return printed(spec.is_alternate ? "%#.*G" : "%.*G", precision, size);
    case '%':
      return printed("%.*f", precision, size * 100) + "%";
    default:
      if (spec.precision >= 0) {
        throw Failure("a precision without a type in a float's format is not known here");
      }
      return float_repr(size);
  }
}

std::string sign_of(bool is_negative, char sign) {
  if (is_negative) return "-";
  return sign == '+' || sign == ' ' ? std::string(1, sign) : "";
}

std::string format_float(Run& run, double value, const Spec& spec) {
  std::string digits = float_digits(value, spec);
  if (spec.grouping != 0) {
    const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
    digits = grouped(digits.substr(0, end), spec.grouping, 3) + digits.substr(end);
  }
  return padded(run, sign_of(std::signbit(value) && !std::isnan(value), spec.sign), digits, spec,
                '>');
}

std::string format_integer(Run& run, int64_t value, const Spec& spec) {
  if (spec.precision >= 0) throw Failure("Precision not allowed in integer format specifier");
  const uint64_t size = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const bool is_hex = spec.type == 'x' || spec.type == 'X';
  const unsigned base = is_hex ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  std::string prefix = sign_of(value < 0, spec.sign);
  if (spec.is_alternate && base != 10) prefix += std::string("0") + spec.type;
  const std::string digits =
      grouped(unsigned_digits(size, base, spec.type == 'X'), spec.grouping, base == 10 ? 3 : 4);
  if (spec.grouping != 0 && spec.align == '=' && spec.fill == "0") {
    throw Failure("zeros with a thousands separator are not known here");
  }
  return padded(run, prefix, digits, spec, '>');
}

std::string format_text(Run& run, std::string_view text, const Spec& spec) {
  if (spec.sign != 0) throw Failure("Sign not allowed in string format specifier");
  if (spec.align == '=' && spec.fill != "0") {
    throw Failure("'=' alignment not allowed in string format specifier");
  }
  Spec plain = spec;
  if (plain.align == '=') plain.align = '<';
  std::string body(text);
  if (spec.precision >= 0) body = text.substr(0, byte_of_code_point(text, spec.precision));
  return padded(run, "", body, plain, '<');
}

[[noreturn]] void fail_type(const Spec& spec, const Value& value) {
  throw Failure(cat("Unknown format code '", std::string(1, spec.type), "' for object of type '",
                    type_name(value), "'"));
}

/// format(value, spec).
std::string format_value(Run& run, const Value& value, std::string_view text) {
  if (text.empty()) return to_text(run, value);
  constexpr std::string_view kFloatTypes = "eEfFgG%";
  const Spec spec = parse_spec(text);
  const bool is_float_type =
      spec.type != 0 && kFloatTypes.find(spec.type) != std::string_view::npos;
  if (value.is_string()) {
    if (spec.type != 0 && spec.type != 's') fail_type(spec, value);
    return format_text(run, value.text->bytes, spec);
  }
  if (value.is(Kind::kBool) && spec.type == 0) {
    throw Failure("a format of a bool without a type is not known here");
  }
  if (value.is_integral() && !is_float_type) {
    constexpr std::string_view kTypes = "bdoxX";
    if (spec.type == 'n' || spec.type == 'c') throw Failure("this format type is not known here");
    if (spec.type != 0 && kTypes.find(spec.type) == std::string_view::npos) fail_type(spec, value);
    return format_integer(run, value.as_integer(), spec);
  }
  if (value.is_number()) {
    if (spec.type != 0 && !is_float_type) fail_type(spec, value);
    return format_float(run, value.as_real(), spec);
  }
  throw Failure(cat("unsupported format string passed to ", type_name(value), ".__format__"));
}

/// str.format's replacement fields.
class BraceFormatter final {
 public:
  BraceFormatter(Run& run, const Arguments& arguments) : run_(run), arguments_(arguments) {}

  std::string format(std::string_view text, int depth) {
    if (depth < 0) throw Failure("Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const char c = text[at++];
      if (c != '{' && c != '}') {
        out.push_back(c);
      } else if (at < text.size() && text[at] == c) {
        out.push_back(c);
        ++at;
      } else if (c == '}') {
        throw Failure("Single '}' encountered in format string");
      } else {
        out += replacement(text, at, depth);
      }
      run_.step();
    }
    return out;
  }

 private:
  std::string replacement(std::string_view text, size_t& at, int depth) {
    const size_t begin = at;
    int open = 1;
    for (; at < text.size() && open > 0; ++at) {
      if (text[at] == '{') ++open;
      if (text[at] == '}') --open;
    }
    if (open > 0) {
      throw Failure(begin == text.size() ? "Single '{' encountered in format string"
                                         : "expected '}' before end of string");
    }
    const std::string_view field = text.substr(begin, at - begin - 1);
    const size_t end = std::min(field.find_first_of("!:"), field.size());
    if (field.substr(0, end).find('[') != std::string_view::npos &&
        field.substr(0, end).find(']') == std::string_view::npos) {
      throw Failure("expected '}' before end of string");
    }
    Value value = find(field.substr(0, end));
    std::string_view rest = field.substr(end);
    if (rest.starts_with("!")) {
      const char conversion = rest.size() > 1 ? rest[1] : char{0};
      if ((conversion != 'r' && conversion != 's') || (rest.size() > 2 && rest[2] != ':')) {
        throw Failure("Unknown conversion specifier in a format");
      }
      value = run_.text(conversion == 'r' ? repr(run_, value) : to_text(run_, value));
      rest.remove_prefix(2);
    }
    const std::string spec = rest.size() > 1 ? format(rest.substr(1), depth - 1) : std::string();
    return format_value(run_, value, spec);
  }

  Value find(std::string_view field) {
    const size_t end = std::min(field.find_first_of(".["), field.size());
    Value value = find_first(field.substr(0, end));
    for (size_t at = end; at < field.size();) {
      if (field[at] == '.') {
        const size_t stop = std::min(field.find_first_of(".[", at + 1), field.size());
        if (stop == at + 1) throw Failure("Empty attribute in format string");
        value = get_attribute(run_, value, run_.text(field.substr(at + 1, stop - at - 1)));
        at = stop;
        continue;
      }
      const size_t stop = field.find(']', at);
      if (stop == std::string_view::npos) throw Failure("Missing ']' in format string");
      const std::string_view key = field.substr(at + 1, stop - at - 1);
      if (key.empty()) throw Failure("Empty attribute in format string");
      const auto number = parse_int(key);
      value = get_item(run_, value, number && *number >= 0 ? Value::from(*number) : run_.text(key));
      at = stop + 1;
      if (at < field.size() && field[at] != '.' && field[at] != '[') {
        throw Failure("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value find_first(std::string_view name) {
    int64_t index = 0;
    if (name.empty()) {
      if (next_ < 0) {
        throw Failure("cannot switch from manual field specification to automatic field numbering");
      }
      index = next_++;
    } else if (const auto number = parse_int(name); number && *number >= 0) {
      if (next_ > 0) {
        throw Failure("cannot switch from automatic field numbering to manual field specification");
      }
      next_ = -1;
      index = *number;
    } else {
      for (const NamedValue& item : arguments_.named) {
        if (item.name == name) return item.value;
      }
      throw Failure(cat("'", name, "'"));
    }
    if (index >= static_cast<int64_t>(arguments_.positional.size())) {
      throw Failure("tuple index out of range");
    }
    return arguments_.positional[static_cast<size_t>(index)];
  }

  Run& run_;
  const Arguments& arguments_;
  int64_t next_ = 0;  // of fields without a name; -1 once fields are numbered
};

/// The % operator's conversions.
class PercentFormatter final {
 public:
  PercentFormatter(Run& run, const Value& values) : run_(run), values_(values) {}

  std::string format(std::string_view text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      run_.step();
      const char c = text[at++];
      if (c != '%') {
        out.push_back(c);
      } else {
        out += conversion(text, at);
      }
    }
    check_all_used();
    return out;
  }

 private:
  void check_all_used() const {
    const bool is_mapping = values_.is(Kind::kDict) || values_.is(Kind::kList) ||
                            values_.is(Kind::kDictView) || values_.is(Kind::kRange) ||
                            values_.is_undefined();  // all that have __getitem__
    const size_t count = values_.is(Kind::kTuple) ? values_.list->size : 1;
    if (next_ < count && !is_mapping && !is_keyed_) {
      throw Failure("not all arguments converted during string formatting");
    }
  }

  Value next_value() {
    if (is_keyed_) throw Failure("a format mixes names and positions");
    const size_t index = next_++;
    if (values_.is(Kind::kTuple)) {
      if (index < values_.list->size) return values_.list->items[index];
    } else if (index == 0) {
      return values_;
    }
    throw Failure("not enough arguments for format string");
  }

  std::string conversion(std::string_view text, size_t& at) {
    Value keyed;
    if (at < text.size() && text[at] == '(') {
      const size_t end = text.find(')', at);
      if (end == std::string_view::npos) throw Failure("incomplete format key");
      if (!values_.is(Kind::kDict)) throw Failure("format requires a mapping");
      const std::string_view key = text.substr(at + 1, end - at - 1);
      const Value* value = values_.dict->find(key);
      if (value == nullptr) throw Failure(cat("'", key, "'"));
      keyed = *value;
      is_keyed_ = true;
      at = end + 1;
    }
    Spec spec;
    bool pads_zeros = false;
    for (; at < text.size() && std::string_view("#0- +").find(text[at]) != std::string_view::npos;
         ++at) {
      if (text[at] == '#') spec.is_alternate = true;
      if (text[at] == '0') pads_zeros = true;
      if (text[at] == '-') spec.align = '<';
      if (text[at] == '+' || (text[at] == ' ' && spec.sign == 0)) spec.sign = text[at];
    }
    spec.width = star_or_number(text, at, spec);
    if (at < text.size() && text[at] == '.') {
      ++at;
      Spec ignored;
      spec.precision = std::max<int64_t>(star_or_number(text, at, ignored), 0);
    }
    while (at < text.size() && (text[at] == 'l' || text[at] == 'h' || text[at] == 'L')) ++at;
    if (at >= text.size()) throw Failure("incomplete format");
    spec.type = text[at++];
    if (spec.type == '%') return "%";
    return convert(keyed.is_missing() ? next_value() : keyed, spec, pads_zeros);
  }

  int64_t star_or_number(std::string_view text, size_t& at, Spec& spec) {
    if (at >= text.size() || text[at] != '*') return read_number(text, at);
    ++at;
    const Value value = next_value();
    if (!value.is_integral()) throw Failure("* wants int");
    const int64_t number = value.as_integer();
    if (number < 0) spec.align = '<';
    if (std::abs(number) > kMaxWidth) throw Failure("a width of a format is too large");
    return std::abs(number);
  }

  std::string convert(const Value& value, Spec spec, bool pads_zeros) {
    switch (spec.type) {
      case 's':
        spec.type = 0;
        return text_conversion(to_text(run_, value), spec);
      case 'r':
        return text_conversion(repr(run_, value), spec);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return integer_conversion(value, spec, pads_zeros);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (value.is_undefined()) fail_undefined(run_, value);
        if (!value.is_number()) {
          throw Failure(cat("must be real number, not ", type_name(value)));
        }
        if (pads_zeros && spec.align == 0) {
          spec.fill = "0";
          spec.align = '=';
        }
        return format_float(run_, value.as_real(), spec);
      case 'a':
      case 'c':
        throw Failure(cat("%", std::string(1, spec.type), " is not known here"));
      default:
        throw Failure(cat("unsupported format character '", std::string(1, spec.type), "'"));
    }
  }

  std::string text_conversion(const std::string& text, const Spec& spec) {
    std::string body = text;
    if (spec.precision >= 0) body = text.substr(0, byte_of_code_point(text, spec.precision));
    return padded(run_, "", body, spec, '>');
  }

  std::string integer_conversion(const Value& value, Spec spec, bool pads_zeros) {
    if (value.is_undefined()) fail_undefined(run_, value);
    const bool is_decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!value.is_number() || (!is_decimal && !value.is_integral())) {
      throw Failure(cat("%", std::string(1, spec.type),
                        " format: ", is_decimal ? "a real number" : "an integer",
                        " is required, not ", type_name(value)));
    }
    if (value.is(Kind::kFloat) && !(std::abs(value.real) < 9.2e18)) {
      throw Failure("cannot convert this float to integer");
    }
    const int64_t number =
        value.is(Kind::kFloat) ? static_cast<int64_t>(value.real) : value.as_integer();
    if (is_decimal) spec.type = 'd';
    if (pads_zeros && spec.align == 0) {
      spec.fill = "0";
      spec.align = '=';
    }
    if (spec.precision >= 0) throw Failure("a precision of an integer is not known here");
    return format_integer(run_, number, spec);
  }

  Run& run_;
  const Value& values_;
  size_t next_ = 0;
  bool is_keyed_ = false;
};

}  // namespace

Value percent_format(Run& run, const Value& format, const Value& values) {
  if (is_markup(format)) throw Failure("% of a safe text is not known here");
  return run.text(PercentFormatter(run, values).format(format.text->bytes));
}

std::string brace_format(Run& run, std::string_view format, const Arguments& arguments) {
  return BraceFormatter(run, arguments).format(format, 2);
}

}  // namespace automodel::chat
