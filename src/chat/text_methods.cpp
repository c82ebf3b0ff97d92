#include "chat/text_methods.h"

#include <algorithm>
#include <array>
#include <vector>

#include "chat/characters.h"
#include "chat/escaping.h"
#include "chat/iteration.h"
#include "chat/methods.h"
#include "chat/parameters.h"
#include "chat/text_format.h"
#include "core/text.h"

namespace automodel::chat {

std::vector<std::string_view> split_lines(std::string_view text, bool keeps_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = next_code_point(text, at);
    const bool is_break = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                          c == 0x2028 || c == 0x2029;
    if (!is_break) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keeps_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replaced(Run& run, std::string_view text, std::string_view old,
                     std::string_view replacement, int64_t count) {
  run.step_bytes(text.size());
  std::string out;
  size_t at = 0;
  if (old.empty()) {
    while (count != 0) {
      run.step_bytes(replacement.size());
      out += replacement;
      --count;
      if (at >= text.size()) return out;
      const size_t begin = at;
      next_code_point(text, at);
      out += text.substr(begin, at - begin);
    }
    return out.append(text.substr(at));
  }
  while (count != 0) {
    const size_t found = find_in(text, old, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    run.step_bytes(replacement.size());
    out += replacement;
    at = found + old.size();
    --count;
  }
  return out.append(text.substr(at));
}

std::string_view stripped_of(Run& run, std::string_view text, std::string_view characters,
                             bool at_left, bool at_right) {
  run.step(characters.size());
  std::vector<char32_t> points;
  for (size_t at = 0; at < characters.size();) points.push_back(next_code_point(characters, at));
  std::ranges::sort(points);
  const auto has = [&](char32_t point) { return std::ranges::binary_search(points, point); };
  size_t begin = 0;
  while (at_left && begin < text.size()) {
    size_t behind = begin;
    if (!has(next_code_point(text, behind))) break;
    begin = behind;
  }
  size_t end = text.size();
  while (at_right && end > begin) {
    size_t before = end;
    if (!has(previous_code_point(text, before))) break;
    end = before;
  }
  return text.substr(begin, end - begin);
}

namespace {

std::string_view bytes_of(Run& run, const Value& self) {
  run.step_bytes(self.text->bytes.size());
  return self.text->bytes;
}

template <std::string (*change)(std::string_view)>
Value changed(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("str method", arguments, 0, 0);
  return run.text(change(bytes_of(run, self)));
}

template <bool at_left, bool at_right>
Value strip(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("strip", arguments, 0, 1);
  const std::string_view text = bytes_of(run, self);
  if (arguments.positional.empty() || arguments.positional[0].is_none()) {
    return run.text_view(stripped(text, at_left, at_right));
  }
  const Value& characters = arguments.positional[0];
  if (characters.is_undefined()) fail_undefined(run, characters);
  if (!characters.is_string()) {
    throw Failure(cat(at_left && at_right ? ""
                      : at_left           ? "l"
                                          : "r",
                      "strip arg must be None or str"));
  }
  return run.text_view(stripped_of(run, text, characters.text->bytes, at_left, at_right));
}

/// Whether all characters pass, and there is at least one.
template <bool (*test)(char32_t)>
Value all_are(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("str method", arguments, 0, 0);
  const std::string_view text = bytes_of(run, self);
  for (size_t at = 0; at < text.size();) {
    run.step();
    if (!test(next_code_point(text, at))) return Value::from(false);
  }
  return Value::from(!text.empty());
}

bool is_ascii_character(char32_t c) {
  return c < 0x80;
}

Value is_ascii(Run& run, const Value& self, const Arguments& arguments) {
  if (self.text->bytes.empty()) return Value::from(true);
  return all_are<is_ascii_character>(run, self, arguments);
}

Value is_all_printable(Run& run, const Value& self, const Arguments& arguments) {
  if (self.text->bytes.empty()) return Value::from(true);
  return all_are<is_printable>(run, self, arguments);
}

/// Cased characters that are all of one case, and one at least.
template <bool (*is_wanted)(char32_t), bool (*is_other)(char32_t)>
Value is_of_case(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("str method", arguments, 0, 0);
  const std::string_view text = bytes_of(run, self);
  bool has_cased = false;
  for (size_t at = 0; at < text.size();) {
    run.step();
    const char32_t c = next_code_point(text, at);
    if (is_other(c) || is_title(c)) return Value::from(false);
    has_cased = has_cased || is_wanted(c);
  }
  return Value::from(has_cased);
}

Value is_titled(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("istitle", arguments, 0, 0);
  const std::string_view text = bytes_of(run, self);
  bool follows_cased = false;
  bool has_cased = false;
  for (size_t at = 0; at < text.size();) {
    run.step();
    const char32_t c = next_code_point(text, at);
    if (is_upper(c) || is_title(c)) {
      if (follows_cased) return Value::from(false);
      follows_cased = has_cased = true;
    } else if (is_lower(c)) {
      if (!follows_cased) return Value::from(false);
      follows_cased = has_cased = true;
    } else {
      follows_cased = false;
    }
  }
  return Value::from(has_cased);
}

int64_t count_limit(Run& run, const Value& value) {
  return value.is_missing() ? -1 : integer_argument(run, value);
}

Value list_of(Run& run, const std::vector<std::string_view>& parts) {
  run.step(parts.size());
  Value out = run.new_list(parts.size());
  for (const std::string_view part : parts) out.list->append(run.arena, run.text_view(part));
  return out;
}

std::vector<std::string_view> split_at_space(std::string_view text, int64_t limit,
                                             bool from_right) {
  std::vector<std::string_view> parts;
  for (;;) {
    text = stripped(text, !from_right, from_right);
    if (text.empty()) return parts;
    if (limit-- == 0) {
      // What is left keeps the space at its far end.
      parts.push_back(text);
      return parts;
    }
    if (from_right) {
      size_t begin = text.size();
      for (size_t before = begin; before > 0; begin = before) {
        if (is_space(previous_code_point(text, before))) break;
      }
      parts.push_back(text.substr(begin));
      text = text.substr(0, begin);
    } else {
      size_t end = 0;
      for (size_t behind = 0; behind < text.size(); end = behind) {
        if (is_space(next_code_point(text, behind))) break;
      }
      parts.push_back(text.substr(0, end));
      text = text.substr(end);
    }
  }
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       int64_t limit) {
  std::vector<std::string_view> parts;
  while (limit-- != 0) {
    const size_t found = find_in(text, separator);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(0, found));
    text = text.substr(found + separator.size());
  }
  parts.push_back(text);
  return parts;
}

/// From the right: the last part first.
std::vector<std::string_view> split_at_from_right(std::string_view text, std::string_view separator,
                                                  int64_t limit) {
  const std::string backwards(text.rbegin(), text.rend());
  const std::string wanted(separator.rbegin(), separator.rend());
  std::vector<std::string_view> parts = split_at(backwards, wanted, limit);
  for (std::string_view& part : parts) {
    const auto begin = static_cast<size_t>(part.data() - backwards.data());
    part = text.substr(text.size() - begin - part.size(), part.size());
  }
  return parts;
}

template <bool from_right>
Value split(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters given("split", arguments, {"sep", "maxsplit"}, 0);
  const int64_t limit = count_limit(run, given[1]);
  const std::string_view text = bytes_of(run, self);
  std::vector<std::string_view> parts;
  if (!given.has(0) || given[0].is_none()) {
    parts = split_at_space(text, limit, from_right);
  } else {
    if (!given[0].is_string()) {
      throw Failure(cat("must be str or None, not ", type_name(given[0])));
    }
    if (given[0].text->bytes.empty()) throw Failure("empty separator");
    const std::string_view separator = given[0].text->bytes;
    parts =
        from_right ? split_at_from_right(text, separator, limit) : split_at(text, separator, limit);
  }
  if (from_right) std::ranges::reverse(parts);
  return list_of(run, parts);
}

Value splitlines(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters given("splitlines", arguments, {"keepends"}, 0);
  return list_of(run, split_lines(bytes_of(run, self), given.is_true(run, 0, false)));
}

/// The part of a text that start and end arguments name, and the byte where it begins; none when
/// start lies behind the end.
struct Part {
  std::string_view text;
  int64_t first_point = 0;
  bool is_valid = true;
};

Part part_of(Run& run, const Value& self, const Arguments& arguments) {
  const std::string_view text = bytes_of(run, self);
  Part part{text};
  if (arguments.positional.size() < 2) return part;
  const int64_t length = length_of(*self.text);
  const auto place = [&](size_t index, int64_t fallback) {
    if (arguments.positional.size() <= index || arguments.positional[index].is_none()) {
      return fallback;
    }
    const Value& value = arguments.positional[index];
    if (!value.is_integral()) {
      throw Failure("slice indices must be integers or None or have an __index__ method");
    }
    const int64_t number = value.as_integer();
    return number < 0 ? std::max<int64_t>(number + length, 0) : number;
  };
  const int64_t start = place(1, 0);
  const int64_t stop = std::min(place(2, length), length);
  if (start > length || start > stop) {
    part.is_valid = false;
    return part;
  }
  const size_t begin = byte_of_code_point(text, start);
  const size_t end = byte_of_code_point(text, stop);
  part.text = text.substr(begin, end - begin);
  part.first_point = start;
  return part;
}

template <bool at_end>
Value affix(Run& run, const Value& self, const Arguments& arguments) {
  const char* name = at_end ? "endswith" : "startswith";
  check_positional(name, arguments, 1, 3);
  const Part part = part_of(run, self, arguments);
  const auto fits = [&](const Value& value) {
    if (!value.is_string()) {
      throw Failure(cat("tuple for ", name, " must only contain str, not ", type_name(value)));
    }
    const std::string_view text = value.text->bytes;
    return part.is_valid && (at_end ? part.text.ends_with(text) : part.text.starts_with(text));
  };
  const Value& wanted = arguments.positional[0];
  if (wanted.is(Kind::kTuple)) {
    for (const Value& item : wanted.list->span()) {
      if (fits(item)) return Value::from(true);
    }
    return Value::from(false);
  }
  if (!wanted.is_string()) {
    throw Failure(cat(name, " first arg must be str or a tuple of str, not ", type_name(wanted)));
  }
  return Value::from(fits(wanted));
}

template <bool from_right, bool fails>
Value find(Run& run, const Value& self, const Arguments& arguments) {
  check_positional(from_right ? "rfind" : "find", arguments, 1, 3);
  const Part part = part_of(run, self, arguments);
  if (!arguments.positional[0].is_string()) {
    throw Failure(cat("must be str, not ", type_name(arguments.positional[0])));
  }
  const std::string_view wanted = arguments.positional[0].text->bytes;
  const size_t found = !part.is_valid ? std::string_view::npos
                       : from_right   ? find_last_in(part.text, wanted)
                                      : find_in(part.text, wanted);
  if (found == std::string_view::npos) {
    if (fails) throw Failure("substring not found");
    return Value::from(int64_t{-1});
  }
  return Value::from(part.first_point + count_code_points(part.text.substr(0, found)));
}

Value count(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("count", arguments, 1, 3);
  const Part part = part_of(run, self, arguments);
  if (!arguments.positional[0].is_string()) {
    throw Failure(cat("must be str, not ", type_name(arguments.positional[0])));
  }
  const std::string_view wanted = arguments.positional[0].text->bytes;
  if (!part.is_valid) return Value::from(int64_t{0});
  if (wanted.empty()) return Value::from(count_code_points(part.text) + 1);
  int64_t number = 0;
  for (size_t at = find_in(part.text, wanted); at != std::string_view::npos;
       at = find_in(part.text, wanted, at + wanted.size())) {
    ++number;
  }
  return Value::from(number);
}

Value replace(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("replace", arguments, 2, 3);
  for (size_t i = 0; i < 2; ++i) {
    if (arguments.positional[i].is_string()) continue;
    throw Failure(cat("replace() argument ", i + 1, " must be str, not ",
                      type_name(arguments.positional[i])));
  }
  const int64_t limit =
      arguments.positional.size() > 2 ? integer_argument(run, arguments.positional[2]) : -1;
  return run.text(replaced(run, self.text->bytes, arguments.positional[0].text->bytes,
                           arguments.positional[1].text->bytes, limit));
}

/// What join of Markup takes of an item: its text, escaped.
Value escaped_item(Run& run, const Value& item) {
  if (is_markup(item)) return item;
  return run.text(escaped_html(to_text(run, item)));
}

Value join(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("join", arguments, 1, 1);
  if (!is_iterable(arguments.positional[0])) throw Failure("can only join an iterable");
  std::string out;
  int64_t index = 0;
  Items items(run, arguments.positional[0]);
  for (Value item; items.next(item); ++index) {
    if (is_markup(self)) item = escaped_item(run, item);
    if (!item.is_string()) {
      throw Failure(
          cat("sequence item ", index, ": expected str instance, ", type_name(item), " found"));
    }
    if (index > 0) out += self.text->bytes;
    out += item.text->bytes;
    run.step_bytes(self.text->bytes.size() + item.text->bytes.size());
    run.check_output(out);
  }
  return like_markup(run, self, run.text(out));
}

Value format(Run& run, const Value& self, const Arguments& arguments) {
  if (is_markup(self)) throw Failure("format of a safe text is not known here");
  return run.text(brace_format(run, self.text->bytes, arguments));
}

template <int place>  // -1 left, 0 centre, 1 right
Value justify(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("justify", arguments, 1, 2);
  const int64_t width = integer_argument(run, arguments.positional[0]);
  std::string_view fill = " ";
  if (arguments.positional.size() > 1) {
    fill = text_argument(run, "fill", arguments.positional[1]);
    if (count_code_points(fill) != 1) {
      throw Failure("The fill character must be exactly one character long");
    }
  }
  const int64_t length = length_of(*self.text);
  if (width <= length) return self;
  if (width > (1 << 24)) throw Failure("a text of the template is too long");
  const int64_t missing = width - length;
  run.step_bytes(static_cast<size_t>(width));
  const int64_t left = place < 0 ? 0 : place > 0 ? missing : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.text->bytes;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return run.text(out);
}

Value zfill(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("zfill", arguments, 1, 1);
  const int64_t width = integer_argument(run, arguments.positional[0]);
  const int64_t missing = width - length_of(*self.text);
  if (missing <= 0) return self;
  if (width > (1 << 24)) throw Failure("a text of the template is too long");
  const std::string_view text = bytes_of(run, self);
  const bool has_sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  std::string out(text.substr(0, has_sign ? 1 : 0));
  out.append(static_cast<size_t>(missing), '0');
  out += text.substr(has_sign ? 1 : 0);
  return run.text(out);
}

template <bool from_right>
Value partition(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("partition", arguments, 1, 1);
  const std::string_view separator = text_argument(run, "partition", arguments.positional[0]);
  if (separator.empty()) throw Failure("empty separator");
  const std::string_view text = bytes_of(run, self);
  const size_t found = from_right ? find_last_in(text, separator) : find_in(text, separator);
  Value out = run.new_list(3, Kind::kTuple);
  const auto add = [&](std::string_view part) { out.list->append(run.arena, run.text_view(part)); };
  if (found == std::string_view::npos) {
    if (from_right) add(""), add("");
    add(text);
    if (!from_right) add(""), add("");
  } else {
    add(text.substr(0, found));
    add(separator);
    add(text.substr(found + separator.size()));
  }
  return out;
}

template <bool at_end>
Value remove_affix(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("remove", arguments, 1, 1);
  const char* name = at_end ? "removesuffix()" : "removeprefix()";
  const std::string_view affix = text_argument(run, name, arguments.positional[0]);
  const std::string_view text = bytes_of(run, self);
  if (at_end && !affix.empty() && text.ends_with(affix)) {
    return run.text_view(text.substr(0, text.size() - affix.size()));
  }
  if (!at_end && text.starts_with(affix)) return run.text_view(text.substr(affix.size()));
  return self;
}

Value expandtabs(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters given("expandtabs", arguments, {"tabsize"}, 0);
  const int64_t size = given.integer(run, 0, 8);
  if (size > 1024) throw Failure("a tab of the template is too wide");
  const std::string_view text = bytes_of(run, self);
  std::string out;
  int64_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      out += text.substr(begin, at - begin);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  run.step_bytes(out.size());
  return run.text(out);
}

/// A method of whose results all texts are Markup where the text is, as markupsafe's.
template <Value (*method)(Run&, const Value&, const Arguments&)>
Value kept(Run& run, const Value& self, const Arguments& arguments) {
  return like_markup(run, self, method(run, self, arguments));
}

/// As kept(), and the second argument, a text that is put in, is escaped.
template <Value (*method)(Run&, const Value&, const Arguments&)>
Value kept_escaping(Run& run, const Value& self, const Arguments& arguments) {
  std::vector<Value> given(arguments.positional.begin(), arguments.positional.end());
  if (is_markup(self) && given.size() > 1 && given[1].is_string() && !is_markup(given[1])) {
    given[1] = run.text(escaped_html(given[1].text->bytes));
  }
  return like_markup(run, self, method(run, self, {given, arguments.named}));
}

constexpr std::array kMethods = {
    Builtin{"strip", kept<strip<true, true>>},
    Builtin{"split", kept<split<false>>},
    Builtin{"startswith", affix<false>},
    Builtin{"endswith", affix<true>},
    Builtin{"lstrip", kept<strip<true, false>>},
    Builtin{"rstrip", kept<strip<false, true>>},
    Builtin{"replace", kept_escaping<replace>},
    Builtin{"upper", kept<changed<to_upper_case>>},
    Builtin{"lower", kept<changed<to_lower_case>>},
    Builtin{"title", kept<changed<to_title_case>>},
    Builtin{"capitalize", kept<changed<capitalized>>},
    Builtin{"swapcase", kept<changed<with_swapped_case>>},
    Builtin{"casefold", kept<changed<case_folded>>},
    Builtin{"rsplit", kept<split<true>>},
    Builtin{"splitlines", kept<splitlines>},
    Builtin{"find", find<false, false>},
    Builtin{"rfind", find<true, false>},
    Builtin{"index", find<false, true>},
    Builtin{"rindex", find<true, true>},
    Builtin{"count", count},
    Builtin{"join", join},
    Builtin{"format", format},
    Builtin{"isalpha", all_are<is_alpha>},
    Builtin{"isdigit", all_are<is_digit>},
    Builtin{"isdecimal", all_are<is_decimal>},
    Builtin{"isnumeric", all_are<is_numeric>},
    Builtin{"isalnum", all_are<is_alphanumeric>},
    Builtin{"isspace", all_are<is_space>},
    Builtin{"isascii", is_ascii},
    Builtin{"isprintable", is_all_printable},
    Builtin{"islower", is_of_case<is_lower, is_upper>},
    Builtin{"isupper", is_of_case<is_upper, is_lower>},
    Builtin{"istitle", is_titled},
    Builtin{"center", kept_escaping<justify<0>>},
    Builtin{"ljust", kept_escaping<justify<-1>>},
    Builtin{"rjust", kept_escaping<justify<1>>},
    Builtin{"zfill", kept<zfill>},
    Builtin{"partition", kept<partition<false>>},
    Builtin{"rpartition", kept<partition<true>>},
    Builtin{"removeprefix", kept<remove_affix<false>>},
    Builtin{"removesuffix", kept<remove_affix<true>>},
    Builtin{"expandtabs", kept<expandtabs>},
};

}  // namespace

bool is_markup(const Value& value) {
  return value.is_string() && value.text->is_markup;
}

Value like_markup(Run& run, const Value& original, const Value& value) {
  if (!is_markup(original)) return value;
  if (value.is_string()) {
    return value.text->is_markup ? value
                                 : Value::from(run.arena.make<Text>(value.text->bytes, true));
  }
  if (!value.is_sequence()) return value;
  for (size_t i = 0; i < value.list->size; ++i) {
    value.list->items[i] = like_markup(run, original, value.list->items[i]);
  }
  return value;
}

const Builtin* find_text_method(std::string_view name) {
  for (const Builtin& method : kMethods) {
    if (name == method.name) return &method;
  }
  return nullptr;
}

}  // namespace automodel::chat
