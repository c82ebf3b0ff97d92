#include "chat/tool_calls.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "chat/balanced_spans.h"
#include "chat/characters.h"
#include "chat/python_json.h"
#include "core/utf8.h"

namespace automodel::chat {

namespace {

using Calls = std::vector<ParsedToolCall>;

constexpr size_t kNowhere = std::string_view::npos;

std::string as_utf8(std::string_view text) {
  std::string out;
  uint32_t code = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = decode_utf8(text, at, code);
    append_utf8(out, length == 0 ? U'\uFFFD' : static_cast<char32_t>(code));
    at += std::max<size_t>(length, 1);
  }
  return out;
}

/// The place of the first character at or behind `at` that `is_one` does not hold for.
template <typename Test>
size_t skip(std::string_view text, size_t at, Test is_one) {
  for (size_t next = at; next < text.size(); at = next) {
    if (!is_one(next_code_point(text, next))) return at;
  }
  return at;
}

size_t skip_space(std::string_view text, size_t at) {
  return skip(text, at, is_space);
}

/// An object of arguments, as one or as JSON text; nothing where it is neither.
std::optional<Json> as_arguments(const Json& value) {
  if (value.is_object()) return value;
  if (!value.is_string()) return std::nullopt;
  std::optional<Json> read = parse_python_json(value.as_string());
  return read && read->is_object() ? std::move(read) : std::nullopt;
}

ParsedToolCall make_call(std::optional<std::string> name, std::optional<Json> arguments) {
  const bool is_valid = arguments.has_value();
  return {std::move(name), is_valid ? *std::move(arguments) : Json::object(), is_valid};
}

/// Adds the call that a value is, if it is one.
void add_call(const Json& value, Calls& calls) {
  const Json* name = value.find("name");
  if (name == nullptr || !name->is_string() || name->as_string().empty()) return;
  const Json* arguments = value.find("arguments");
  if (arguments == nullptr) arguments = value.find("parameters");
  calls.push_back(make_call(name->as_string(),
                            as_arguments(arguments == nullptr ? Json::object() : *arguments)));
}

void add_calls(const Json& list, Calls& calls) {
  for (const Json& value : list.as_array()) add_call(value, calls);
}

/// What stands behind an opening mark, up to the bracket that ends it.
struct Body {
  std::string name;  ///< that the mark gives
  std::string_view text;
};

/// The place behind an opening mark at a place of a text, and the name that the mark gives.
struct Mark {
  size_t end = 0;
  std::string name;
};

/// The bodies behind the marks that begin with `word`. `read_mark` reads what follows the word.
template <typename ReadMark>
std::vector<Body> find_bodies(std::string_view text, std::string_view word, ReadMark read_mark,
                              std::string_view brackets) {
  std::vector<size_t> begins;
  std::vector<std::string> names;
  for (size_t at = text.find(word); at != kNowhere; at = text.find(word, at)) {
    at += word.size();
    const std::optional<Mark> mark = read_mark(at);
    if (!mark) continue;
    at = mark->end;
    if (at >= text.size() || text[at] != brackets[0]) continue;
    begins.push_back(at);
    names.push_back(mark->name);
  }
  const std::vector<size_t> ends = balanced_ends(text, begins, brackets[0], brackets[1]);
  std::vector<Body> bodies;
  for (size_t i = 0; i < begins.size(); ++i) {
    if (ends[i] == kNowhere) continue;
    bodies.push_back({std::move(names[i]), text.substr(begins[i], ends[i] - begins[i])});
  }
  return bodies;
}

/// Reads a mark that is its word alone.
auto nameless_mark(std::string_view text) {
  return [text](size_t at) { return std::optional(Mark{skip_space(text, at), {}}); };
}

Calls parse_harmony(std::string_view text) {
  const auto skip_word = [&](size_t& at, std::string_view word) {
    if (text.substr(at, word.size()) != word) return false;
    at += word.size();
    return true;
  };
  const auto read_mark = [&](size_t at) -> std::optional<Mark> {
    at = skip_space(text, at);
    if (!skip_word(at, "commentary")) return std::nullopt;
    const size_t behind = at;
    at = skip_space(text, at);
    if (at == behind || !skip_word(at, "to=functions.")) return std::nullopt;
    const size_t end =
        skip(text, at, [](char32_t c) { return is_alphanumeric(c) || c == U'_' || c == U'-'; });
    if (end == at) return std::nullopt;
    size_t message = text.find('<', end);
    if (message == kNowhere || !skip_word(message, "<|message|>")) return std::nullopt;
    return Mark{skip_space(text, message), std::string(text.substr(at, end - at))};
  };
  Calls calls;
  for (Body& body : find_bodies(text, "<|channel|>", read_mark, "{}")) {
    calls.push_back(make_call(std::move(body.name), as_arguments(Json(body.text))));
  }
  return calls;
}

/// What stands between the next <tool_call> at or behind `at` and its </tool_call>, without white
/// space around it but one character at least; `at` moves behind it.
std::optional<std::string_view> next_tool_call(std::string_view text, size_t& at) {
  constexpr std::string_view kOpen = "<tool_call>";
  constexpr std::string_view kClose = "</tool_call>";
  at = text.find(kOpen, at);
  if (at == kNowhere) return std::nullopt;
  const size_t outside = at + kOpen.size();
  size_t begin = skip_space(text, outside);
  if (begin == text.size()) return std::nullopt;
  size_t second = begin;
  next_code_point(text, second);
  size_t close = text.find(kClose, second);
  if (close == kNowhere) {
    // Nothing but white space, of which the last character is taken for the call.
    if (begin == outside || text.substr(begin, kClose.size()) != kClose) return std::nullopt;
    close = begin;
    second = begin;
    previous_code_point(text, begin);
  }
  at = close + kClose.size();
  const std::string_view rest = stripped(text.substr(second, close - second), false, true);
  return text.substr(begin, second - begin + rest.size());
}

Calls parse_qwen(std::string_view text) {
  Calls calls;
  size_t at = 0;
  while (const std::optional<std::string_view> body = next_tool_call(text, at)) {
    const std::optional<Json> value = parse_python_json(*body);
    if (!value) {
      calls.emplace_back();
    } else if (value->is_array()) {
      add_calls(*value, calls);
    } else {
      add_call(*value, calls);
    }
  }
  return calls;
}

Calls parse_llama(std::string_view text) {
  Calls calls;
  for (const Body& body : find_bodies(text, "<|python_tag|>", nameless_mark(text), "{}")) {
    const std::optional<Json> value = parse_python_json(body.text);
    if (value) {
      add_call(*value, calls);
    } else {
      calls.emplace_back();
    }
  }
  return calls;
}

Calls parse_mistral(std::string_view text) {
  Calls calls;
  for (const Body& body : find_bodies(text, "[TOOL_CALLS]", nameless_mark(text), "[]")) {
    if (const std::optional<Json> value = parse_python_json(body.text)) add_calls(*value, calls);
  }
  return calls;
}

/// Objects that lie in no other one; a quote outside them begins a string as well.
Calls parse_objects(std::string_view text) {
  Calls calls;
  int64_t depth = 0;
  size_t begin = 0;
  bool is_in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      is_in_string = !is_in_string;
    } else if (is_in_string) {
      if (c == '\\') ++at;
    } else if (c == '{') {
      if (depth++ == 0) begin = at;
    } else if (c == '}' && depth > 0 && --depth == 0) {
      const std::optional<Json> value = parse_python_json(text.substr(begin, at + 1 - begin));
      if (value) add_call(*value, calls);
    }
  }
  return calls;
}

/// The members by their keys; of equal keys the last.
std::map<std::string_view, const Json*> by_key(const Json& object) {
  std::map<std::string_view, const Json*> members;
  for (const auto& [key, value] : object.as_object()) members[key] = &value;
  return members;
}

bool is_number(const Json& value) {
  return value.is_bool() || value.is_number();
}

bool equal_numbers(const Json& a, const Json& b) {
  const auto is_whole = [](const Json& x) { return x.is_bool() || x.is_int(); };
  const auto whole = [](const Json& x) { return x.is_bool() ? int64_t{x.as_bool()} : x.as_int(); };
  if (is_whole(a) && is_whole(b)) return whole(a) == whole(b);
  if (is_whole(b)) return equal_numbers(b, a);
  const double y = b.as_double();
  if (is_whole(a)) {
    constexpr double kBeyond = 0x1p63;
    return !b.is_big_integer() && y >= -kBeyond && y < kBeyond && y == std::floor(y) &&
           static_cast<int64_t>(y) == whole(a);
  }
  const double x = a.as_double();
  return x == y || (std::isnan(x) && std::isnan(y));
}

bool equal_in_python(const Json& a, const Json& b) {
  if (is_number(a) && is_number(b)) return equal_numbers(a, b);
  if (a.is_array() && b.is_array()) {
    return std::ranges::equal(a.as_array(), b.as_array(), equal_in_python);
  }
  if (a.is_object() && b.is_object()) {
    return std::ranges::equal(by_key(a), by_key(b), [](const auto& x, const auto& y) {
      return x.first == y.first && equal_in_python(*x.second, *y.second);
    });
  }
  return a == b;
}

/// The part of `keys`, which are some, that `others` have.
double share_in(const std::map<std::string_view, const Json*>& keys,
                const std::map<std::string_view, const Json*>& others) {
  const auto num_shared = std::ranges::count_if(
      keys, [&](const auto& member) { return others.contains(member.first); });
  return static_cast<double>(num_shared) / static_cast<double>(keys.size());
}

ToolCallScores score_call(const ParsedToolCall& call, const Json& expected) {
  const auto one_if = [](bool holds) { return holds ? 1.0 : 0.0; };
  const Json* name = expected.find("name");
  const Json* given = expected.find("arguments");
  const Json arguments =
      (given == nullptr ? std::nullopt : as_arguments(*given)).value_or(Json::object());
  const auto keys = by_key(call.arguments);
  const auto wanted = by_key(arguments);
  const bool is_named = name != nullptr && !name->is_null();
  return {.has_call = 1,
          .name_correct = one_if(call.name ? is_named && *name == Json(*call.name) : !is_named),
          .args_json_valid = one_if(call.has_valid_arguments),
          .args_field_recall = wanted.empty() ? one_if(keys.empty()) : share_in(wanted, keys),
          .args_field_precision = keys.empty() ? one_if(wanted.empty()) : share_in(keys, wanted),
          .args_exact_match =
              one_if(call.has_valid_arguments && equal_in_python(call.arguments, arguments))};
}

}  // namespace

ToolCallScores& ToolCallScores::operator+=(const ToolCallScores& other) {
  for (const auto& [name, score] : metrics()) this->*score += other.*score;
  return *this;
}

ToolCallScores& ToolCallScores::operator/=(double count) {
  for (const auto& [name, score] : metrics()) this->*score /= count;
  return *this;
}

std::vector<ParsedToolCall> parse_tool_calls(std::string_view text) {
  std::string copy;
  if (!is_utf8(text)) text = copy = as_utf8(text);
  for (const auto parse : {parse_harmony, parse_qwen, parse_llama, parse_mistral}) {
    if (Calls calls = parse(text); !calls.empty()) return calls;
  }
  return parse_objects(text);
}

ToolCallScores score_tool_calls(const std::vector<ParsedToolCall>& predicted,
                                const Json& expected) {
  const Json::Array& wanted = expected.as_array();
  ToolCallScores scores;
  for (size_t i = 0; i < std::min(wanted.size(), predicted.size()); ++i) {
    scores += score_call(predicted[i], wanted[i]);
  }
  if (!wanted.empty()) scores /= static_cast<double>(wanted.size());
  return scores;
}

}  // namespace automodel::chat
