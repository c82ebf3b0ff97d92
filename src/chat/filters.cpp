#include "chat/filters.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "chat/characters.h"
#include "chat/escaping.h"
#include "chat/iteration.h"
#include "chat/json_text.h"
#include "chat/methods.h"
#include "chat/operators.h"
#include "chat/parameters.h"
#include "chat/text_format.h"
#include "chat/text_methods.h"
#include "core/text.h"

namespace automodel::chat {

namespace {

Value markup(Run& run, std::string_view text) {
  return Value::from(run.arena.make<Text>(run.arena.copy(text), true));
}

/// soft_str(value) of a filter that takes nothing else.
std::string only_text(Run& run, const char* name, const Arguments& arguments) {
  const Parameters given(name, arguments, {"s"}, 1);
  return to_text(run, given[0]);
}

Value absolute(Run& run, const Arguments& arguments) {
  check_positional("abs", arguments, 1, 1);
  const Value& value = arguments.positional[0];
  if (value.is(Kind::kFloat)) return Value::from(std::abs(value.real));
  if (value.is_integral())
    return value.as_integer() < 0 ? negative(run, value) : positive(run, value);
  throw Failure(cat("bad operand type for abs(): '", type_name(value), "'"));
}

Value attribute(Run& run, const Arguments& arguments) {
  const Parameters given("do_attr", arguments, {"obj", "name"}, 2);
  if (!given[1].is_string()) {
    throw Failure(cat("attribute name must be string, not '", type_name(given[1]), "'"));
  }
  if (given[0].is_undefined()) fail_undefined(run, given[0]);
  bool is_safe = true;
  const Value value = python_attribute(run, given[0], given[1].text->bytes, is_safe);
  if (value.is_missing() && is_safe) return run.undefined_member(given[0], given[1]);
  return get_attribute(run, given[0], given[1]);
}

/// soft_str(value): a text is left what it is, Markup too.
Value soft_text(Run& run, const Value& value) {
  return value.is_string() ? value : run.text(to_text(run, value));
}

/// A method of str on soft_str(value), as a filter that takes nothing else.
Value by_method(Run& run, const char* name, const char* method, const Arguments& arguments) {
  const Parameters given(name, arguments, {"s"}, 1);
  const Value text = soft_text(run, given[0]);
  return find_method(Kind::kString, method)->call(run, text, {});
}

Value capitalize(Run& run, const Arguments& arguments) {
  return by_method(run, "do_capitalize", "capitalize", arguments);
}

Value center(Run& run, const Arguments& arguments) {
  const Parameters given("do_center", arguments, {"value", "width"}, 1);
  const Value text = soft_text(run, given[0]);
  const Value width = Value::from(given.integer(run, 1, 80));
  const Builtin* method = find_method(Kind::kString, "center");
  return method->call(run, text, {{&width, 1}, {}});
}

Value length(Run&, const Arguments& arguments) {
  check_positional("len", arguments, 1, 1);
  const Value& value = arguments.positional[0];
  return Value::from(length_of(value));
}

Value length_or_loop(Run& run, const Arguments& arguments) {
  if (arguments.positional.size() == 1 && arguments.positional[0].is(Kind::kLoop)) {
    return Value::from(loop_length(run, *arguments.positional[0].loop));
  }
  return length(run, arguments);
}

Value fallback(Run& run, const Arguments& arguments) {
  const Parameters given("do_default", arguments, {"value", "default_value", "boolean"}, 1);
  const bool is_replaced =
      given[0].is_undefined() || (given.is_true(run, 2, false) && !is_true(run, given[0]));
  if (!is_replaced) return given[0];
  return given.has(1) ? given[1] : run.text_view("");
}

Value escape(Run& run, const Arguments& arguments) {
  check_positional("escape", arguments, 1, 1);
  const Value& value = arguments.positional[0];
  if (value.is_string() && value.text->is_markup) return value;
  return markup(run, escaped_html(to_text(run, value)));
}

Value force_escape(Run& run, const Arguments& arguments) {
  return markup(run, escaped_html(only_text(run, "do_forceescape", arguments)));
}

Value mark_safe(Run& run, const Arguments& arguments) {
  return markup(run, only_text(run, "do_mark_safe", arguments));
}

Value to_string(Run& run, const Arguments& arguments) {
  check_positional("soft_str", arguments, 1, 1);
  return soft_text(run, arguments.positional[0]);
}

Value file_size(Run& run, const Arguments& arguments) {
  const Parameters given("do_filesizeformat", arguments, {"value", "binary"}, 1);
  if (!given[0].is_number()) throw Failure("filesizeformat of what is no number");
  const bool is_binary = given.is_true(run, 1, false);
  const double bytes = given[0].as_real();
  const double base = is_binary ? 1024 : 1000;
  if (bytes == 1) return run.text_view("1 Byte");
  if (bytes < base) return run.text(cat(static_cast<int64_t>(bytes), " Bytes"));
  constexpr std::string_view kLetters = "kMGTPEZY";
  double unit = base;
  size_t index = 0;
  do {
    unit *= base;
  } while (bytes >= unit && ++index < kLetters.size());
  if (index == kLetters.size()) --index;
  std::string prefix(1, kLetters[index]);
  if (is_binary && prefix == "k") prefix = "K";
  return run.text(cat(format_fixed(base * bytes / unit, 1), " ", prefix, is_binary ? "iB" : "B"));
}

/// int(text, base) of Python.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  text = stripped(text, true, true);
  bool is_negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    is_negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 32);
    const int64_t of_prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (of_prefix != 0 && (base == of_prefix || base == 0)) {
      base = of_prefix;
      text.remove_prefix(2);
      if (text.starts_with("_")) text.remove_prefix(1);
    }
  }
  if (base == 0) base = 10;
  if (text.empty() || text.front() == '_' || text.back() == '_' || base < 2 || base > 36 ||
      text.front() == '-' || text.find("__") != std::string_view::npos) {
    return std::nullopt;
  }
  const std::string digits = replace_all(std::string(text), "_", "");
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, static_cast<int>(base));
  if (end != digits.data() + digits.size()) return std::nullopt;
  if (error != std::errc()) throw Failure("an integer of the template does not fit into 64 bits");
  return is_negative ? -number : number;
}

/// float(text) of Python.
std::optional<double> parse_real(std::string_view text) {
  text = stripped(text, true, true);
  std::string plain = to_lower(text);
  bool is_negative = false;
  if (!plain.empty() && (plain[0] == '-' || plain[0] == '+')) {
    is_negative = plain[0] == '-';
    plain.erase(0, 1);
  }
  if (plain.find("__") != std::string::npos || plain.starts_with("_") || plain.ends_with("_") ||
      plain.starts_with("-") || plain.starts_with("0x")) {
    return std::nullopt;
  }
  plain = replace_all(plain, "_", "");
  double number = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), number);
  if (plain.empty() || end != plain.data() + plain.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    throw Failure("a number of the template is out of a float's range");
  }
  return is_negative ? -number : number;
}

std::optional<int64_t> truncated(double value) {
  if (std::isnan(value) || std::isinf(value)) return std::nullopt;
  if (std::abs(value) >= 9.2e18) {
    throw Failure("an integer of the template does not fit into 64 bits");
  }
  return static_cast<int64_t>(value);
}

Value to_integer(Run& run, const Arguments& arguments) {
  const Parameters given("do_int", arguments, {"value", "default", "base"}, 1);
  const Value& value = given[0];
  const Value other = given.has(1) ? given[1] : Value::from(int64_t{0});
  if (value.is_undefined()) fail_undefined(run, value);
  std::optional<int64_t> number;
  if (value.is_string()) {
    number = parse_integer(value.text->bytes, given.integer(run, 2, 10));
    if (!number) {
      if (const auto real = parse_real(value.text->bytes)) number = truncated(*real);
    }
  } else if (value.is_integral()) {
    number = value.as_integer();
  } else if (value.is(Kind::kFloat)) {
    if (std::isinf(value.real)) throw Failure("cannot convert float infinity to integer");
    number = truncated(value.real);
  }
  return number ? Value::from(*number) : other;
}

Value to_real(Run& run, const Arguments& arguments) {
  const Parameters given("do_float", arguments, {"value", "default"}, 1);
  const Value& value = given[0];
  if (value.is_undefined()) fail_undefined(run, value);
  if (value.is_number()) return Value::from(value.as_real());
  if (value.is_string()) {
    if (const auto number = parse_real(value.text->bytes)) return Value::from(*number);
  }
  return given.has(1) ? given[1] : Value::from(0.0);
}

Value format(Run& run, const Arguments& arguments) {
  if (arguments.positional.size() > 1 && !arguments.named.empty()) {
    throw Failure("can't handle positional and keyword arguments at the same time");
  }
  const Value text = soft_text(run, arguments.positional[0]);
  Value values;
  if (!arguments.named.empty()) {
    values = Value::from(Kind::kDict, run.arena.make<Dict>());
    for (const NamedValue& item : arguments.named) {
      values.dict->set(run, run.text(item.name), item.value);
    }
  } else {
    values = run.new_list(0, Kind::kTuple);
    for (const Value& value : arguments.positional.subspan(1)) {
      values.list->append(run.arena, value);
    }
  }
  return percent_format(run, text, values);
}

Value indent(Run& run, const Arguments& arguments) {
  const Parameters given("do_indent", arguments, {"s", "width", "first", "blank"}, 1);
  if (given[0].is_undefined()) fail_undefined(run, given[0]);
  if (!given[0].is_string()) {
    throw Failure(cat("unsupported operand type(s) for +=: '", type_name(given[0]), "' and 'str'"));
  }
  std::string indention;
  if (given.has(1) && given[1].is_string()) {
    indention = given[1].text->bytes;
  } else {
    const int64_t width = given.integer(run, 1, 4);
    if (width > 4096) throw Failure("an indention of the template is too wide");
    indention.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const std::string text = std::string(given[0].text->bytes) + "\n";
  const bool indents_blank = given.is_true(run, 3, false);
  std::string out;
  bool is_first = true;
  for (const std::string_view line : split_lines(text, false)) {
    if (!is_first) {
      out.push_back('\n');
      if (indents_blank || !line.empty()) out += indention;
    }
    out += line;
    is_first = false;
    run.step_bytes(line.size() + indention.size());
    run.check_output(out);
  }
  if (given.is_true(run, 2, false)) out = indention + out;
  return like_markup(run, given[0], run.text(out));
}

Value to_list_value(Run& run, const Arguments& arguments) {
  const Parameters given("do_list", arguments, {"value"}, 1);
  return to_list(run, given[0]);
}

Value lower(Run& run, const Arguments& arguments) {
  return by_method(run, "do_lower", "lower", arguments);
}

Value upper(Run& run, const Arguments& arguments) {
  return by_method(run, "do_upper", "upper", arguments);
}

Value replace(Run& run, const Arguments& arguments) {
  const Parameters given("do_replace", arguments, {"s", "old", "new", "count"}, 3);
  const int64_t limit = given.has(3) && !given[3].is_none() ? integer_argument(run, given[3]) : -1;
  return run.text(
      replaced(run, to_text(run, given[0]), to_text(run, given[1]), to_text(run, given[2]), limit));
}

/// Python's round: half to even, exactly.
Value round(Run& run, const Arguments& arguments) {
  const Parameters given("do_round", arguments, {"value", "precision", "method"}, 1);
  const std::string method = given.text(run, 2, "common");
  if (method != "common" && method != "ceil" && method != "floor") {
    throw Failure("method must be common, ceil or floor");
  }
  if (given[0].is_undefined()) fail_undefined(run, given[0]);
  const int64_t precision = given.integer(run, 1, 0);
  if (!given[0].is_number()) {
    throw Failure(cat("type ", type_name(given[0]), " doesn't define __round__ method"));
  }
  if (precision > 300 || precision < -300) throw Failure("a precision of round is too large");
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = given[0].as_real() * scale;
    const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
    if (std::abs(whole) >= 9e15) throw Failure("a number is too large to be rounded");
    return Value::from((whole == 0 ? 0.0 : whole) / scale);
  }
  if (given[0].is_integral()) {
    if (precision >= 0) return Value::from(given[0].as_integer());
    throw Failure("rounding integers to tens is not known here");
  }
  const double value = given[0].real;
  if (precision < 0) throw Failure("rounding to tens is not known here");
  if (!std::isfinite(value)) return given[0];
  return Value::from(std::stod(format_fixed(value, static_cast<int>(precision))));
}

Value strip_tags(Run& run, const Arguments& arguments) {
  std::string text = only_text(run, "do_striptags", arguments);
  if (text.find('&') != std::string::npos) {
    throw Failure("striptags of a text with entities is not known here");
  }
  // Comments first, then tags, as markupsafe does.
  for (const auto& [open, close] :
       {std::pair<const char*, const char*>{"<!--", "-->"}, {"<", ">"}}) {
    size_t at = 0;
    while ((at = text.find(open, at)) != std::string::npos) {
      const size_t end = text.find(close, at);
      if (end == std::string::npos) break;
      text.erase(at, end + std::string_view(close).size() - at);
    }
  }
  std::string out;
  for (std::string_view rest = stripped(text, true, true); !rest.empty();) {
    size_t end = 0;
    for (size_t behind = 0; behind < rest.size(); end = behind) {
      if (is_space(next_code_point(rest, behind))) break;
    }
    if (!out.empty()) out.push_back(' ');
    out += rest.substr(0, end);
    rest = stripped(rest.substr(end), true, false);
  }
  return run.text(out);
}

Value title(Run& run, const Arguments& arguments) {
  const std::string text = only_text(run, "do_title", arguments);
  std::string out;
  std::string word;
  const auto flush = [&] {
    if (word.empty()) return;
    size_t end = 0;
    next_code_point(word, end);
    out += to_upper_case(word.substr(0, end)) + to_lower_case(word.substr(end));
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    const bool splits = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
    if (splits) flush();
    (splits ? out : word) += text.substr(begin, at - begin);
  }
  flush();
  return run.text(out);
}

Value to_json_value(Run& run, const Arguments& arguments) {
  const Parameters given("tojson", arguments,
                         {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  JsonFormat json;
  json.is_ascii = given.is_true(run, 1, false);
  json.sorts_keys = given.is_true(run, 4, false);
  if (given.has(2) && !given[2].is_none()) {
    if (given[2].is_string()) {
      json.indent = std::string(given[2].text->bytes);
    } else {
      const int64_t width = integer_argument(run, given[2]);
      if (width > 4096) throw Failure("an indention of the template is too wide");
      json.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
    json.item_separator = ",";
  }
  if (given.has(3) && !given[3].is_none()) {
    const Value parts = to_list(run, given[3]);
    if (parts.list->size != 2 || !parts.list->items[0].is_string() ||
        !parts.list->items[1].is_string()) {
      throw Failure("separators must be two strings");
    }
    json.item_separator = parts.list->items[0].text->bytes;
    json.key_separator = parts.list->items[1].text->bytes;
  }
  return run.text(to_json(run, given[0], json));
}

Value trim(Run& run, const Arguments& arguments) {
  const Parameters given("do_trim", arguments, {"value", "chars"}, 1);
  const Builtin* method = find_method(Kind::kString, "strip");
  const Value characters = given[1];
  return method->call(run, soft_text(run, given[0]), {{&characters, given.has(1) ? 1U : 0U}, {}});
}

Value truncate(Run& run, const Arguments& arguments) {
  const Parameters given("do_truncate", arguments, {"s", "length", "killwords", "end", "leeway"},
                         1);
  const int64_t length = given.integer(run, 1, 255);
  const std::string end = given.text(run, 3, "...");
  const int64_t leeway = given.has(4) && !given[4].is_none() ? integer_argument(run, given[4]) : 5;
  const int64_t end_size = count_code_points(end);
  if (length < end_size) {
    throw Failure(cat("expected length >= ", end_size, ", got ", length));
  }
  if (leeway < 0) throw Failure(cat("expected leeway >= 0, got ", leeway));
  if (length_of(given[0]) <= length + leeway) return given[0];
  if (!given[0].is_string()) throw Failure("truncate of what is no text");
  const std::string_view text = given[0].text->bytes;
  std::string_view kept = text.substr(0, byte_of_code_point(text, length - end_size));
  if (!given.is_true(run, 2, false)) kept = kept.substr(0, kept.rfind(' '));
  if (!is_markup(given[0])) return run.text(cat(kept, end));
  const bool is_end_safe = given.has(3) && is_markup(given[3]);
  return markup(run, cat(kept, is_end_safe ? end : escaped_html(end)));
}

Value quote_url(Run& run, const Arguments& arguments) {
  const Parameters given("do_urlencode", arguments, {"value"}, 1);
  const Value& value = given[0];
  if (value.is_string() || !is_iterable(value)) {
    return run.text(quoted_url(to_text(run, value), false));
  }
  std::string out;
  const auto add = [&](const Value& key, const Value& item) {
    if (!out.empty()) out.push_back('&');
    out += quoted_url(to_text(run, key), true) + "=" + quoted_url(to_text(run, item), true);
  };
  if (value.is(Kind::kDict)) {
    for (size_t i = 0; i < value.dict->size; ++i) {
      add(value.dict->entries[i].key, value.dict->entries[i].value);
    }
    return run.text(out);
  }
  Items items(run, value);
  for (Value item; items.next(item);) {
    const Value pair = to_list(run, item);
    if (pair.list->size != 2) throw Failure("urlencode takes pairs");
    add(pair.list->items[0], pair.list->items[1]);
  }
  return run.text(out);
}

Value word_count(Run& run, const Arguments& arguments) {
  const std::string text = only_text(run, "do_wordcount", arguments);
  int64_t number = 0;
  bool is_inside = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    const bool is_word = c == '_' || is_alphanumeric(c);
    if (is_word && !is_inside) ++number;
    is_inside = is_word;
  }
  return Value::from(number);
}

Value join(Run& run, const Arguments& arguments) {
  const Parameters given("do_join", arguments, {"value", "d", "attribute"}, 1);
  const std::string separator = given.text(run, 1, "");
  std::string out;
  bool is_first = true;
  Value source = given[0];
  if (given.has(2) && !given[2].is_none()) {
    const Value named[] = {source};
    const NamedValue attribute_argument[] = {{"attribute", given[2]}};
    source = find_sequence_filter("map")->call(run, {named, attribute_argument});
  }
  if (!is_iterable(source)) throw Failure("can only join an iterable");
  Items items(run, source);
  for (Value item; items.next(item); is_first = false) {
    if (!is_first) out += separator;
    const size_t before = out.size();
    append_str(run, item, out);
    run.step_bytes(out.size() - before + separator.size());
    run.check_output(out);
  }
  return run.text(out);
}

template <const char* const& name>
Value refuse(Run&, const Arguments&) {
  throw Failure(cat("the filter '", name, "' is not known here"));
}

constexpr const char* kRandom = "random";
constexpr const char* kPprint = "pprint";
constexpr const char* kUrlize = "urlize";
constexpr const char* kXmlattr = "xmlattr";
constexpr const char* kWordwrap = "wordwrap";

constexpr std::array kFilters = {
    Filter{"tojson", to_json_value},
    Filter{"trim", trim},
    Filter{"length", length_or_loop},
    Filter{"join", join},
    Filter{"default", fallback},
    Filter{"list", to_list_value},
    Filter{"replace", replace},
    Filter{"string", to_string},
    Filter{"upper", upper},
    Filter{"lower", lower},
    Filter{"title", title},
    Filter{"capitalize", capitalize},
    Filter{"int", to_integer},
    Filter{"float", to_real},
    Filter{"safe", mark_safe},
    Filter{"indent", indent},
    Filter{"d", fallback},
    Filter{"count", length_or_loop},
    Filter{"abs", absolute},
    Filter{"attr", attribute},
    Filter{"center", center},
    Filter{"e", escape},
    Filter{"escape", escape},
    Filter{"forceescape", force_escape},
    Filter{"filesizeformat", file_size},
    Filter{"format", format},
    Filter{"round", round},
    Filter{"striptags", strip_tags},
    Filter{"truncate", truncate},
    Filter{"urlencode", quote_url},
    Filter{"wordcount", word_count},
    Filter{"random", refuse<kRandom>},
    Filter{"pprint", refuse<kPprint>},
    Filter{"urlize", refuse<kUrlize>},
    Filter{"xmlattr", refuse<kXmlattr>},
    Filter{"wordwrap", refuse<kWordwrap>},
};

}  // namespace

const Filter* find_filter(std::string_view name) {
  for (const Filter& filter : kFilters) {
    if (name == filter.name) return &filter;
  }
  return find_sequence_filter(name);
}

}  // namespace automodel::chat
