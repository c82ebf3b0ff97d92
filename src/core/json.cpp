#include "core/json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

// A namespace of its own: other libraries of a program may hold another version's functions.
#define RAPIDJSON_NAMESPACE automodel_rapidjson
#include <rapidjson/reader.h>
#include <rapidjson/stream.h>

#include "core/error.h"
#include "core/file.h"
#include "core/json_watch.h"
#include "core/utf8.h"

namespace automodel {

namespace {

/// Bare Infinity, -Infinity and NaN outside strings become {"__float__": ...}, which the builder
/// below turns into doubles together with the spelled-out form.
std::string quote_bare_floats(std::string_view text) {
  constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
  std::string out;
  out.reserve(text.size() + 64);
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      out.push_back(c);
      if (c == '\\' && i + 1 < text.size()) out.push_back(text[++i]);
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    bool replaced = false;
    if (c == 'I' || c == 'N' || c == '-') {
      for (const std::string_view word : kWords) {
        if (text.substr(i, word.size()) != word) continue;
        out += cat("{\"__float__\": \"", word, "\"}");
        i += word.size() - 1;
        replaced = true;
        break;
      }
    }
    if (!replaced) out.push_back(c);
  }
  return out;
}

/// Values put together from a parser's events, without recursion. What takes an event returns
/// whether the parse goes on.
class Tree final {
 public:
  static constexpr size_t kMaxDepth = 512;

  Json take() { return std::move(root_); }

  bool key(std::string key) {
    open_.back().key = std::move(key);
    return true;
  }

  /// False where the container would be too deep.
  bool open(Json container) {
    if (open_.size() >= kMaxDepth) return false;
    if (container.is_object()) container.as_object().reserve(4);  // most have as few
    open_.push_back({std::move(container), {}});
    return true;
  }

  bool close() {
    Json done = std::move(open_.back().container);
    open_.pop_back();
    return put(as_float(std::move(done)));
  }

  bool put(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Open& last = open_.back(); last.container.is_array()) {
      last.container.as_array().push_back(std::move(value));
    } else {
      add_member(last.container, std::move(last.key), std::move(value));
    }
    return true;
  }

 private:
  struct Open {
    Json container;
    std::string key;
  };

  static void add_member(Json& object, std::string key, Json value) {
    Json::Object& members = object.as_object();
    // Only small objects are searched for duplicates: vocabularies have 10^5 members.
    if (members.size() < 64) {
      if (Json* old = object.find(key)) {
        *old = std::move(value);
        return;
      }
    }
    members.emplace_back(std::move(key), std::move(value));
  }

  static Json as_float(Json value) {
    if (!value.is_object() || value.size() != 1) return value;
    const Json* text = value.find("__float__");
    if (text == nullptr || !text->is_string()) return value;
    const double infinity = std::numeric_limits<double>::infinity();
    if (text->as_string() == "Infinity") return Json(infinity);
    if (text->as_string() == "-Infinity") return Json(-infinity);
    if (text->as_string() == "NaN") return Json(std::numeric_limits<double>::quiet_NaN());
    return value;
  }

  Json root_;
  std::vector<Open> open_;
};

/// A number that is no integer of 64 bits.
Json json_of(double value, std::string_view text) {
  const bool is_integer = text.find_first_of(".eE") == std::string_view::npos;
  return is_integer ? Json::big_integer(value) : Json(value);
}

/// RapidJSON's events. A handler that returns false ends the parse.
class FastEvents final : public automodel_rapidjson::BaseReaderHandler<> {
 public:
  using Size = automodel_rapidjson::SizeType;

  Json take() { return tree_.take(); }

  bool Null() { return tree_.put(Json()); }
  bool Bool(bool value) { return tree_.put(Json(value)); }
  bool RawNumber(const char* text, Size size, bool) {
    const auto reads = [&](auto& value) {
      const auto [end, error] = std::from_chars(text, text + size, value);
      return error == std::errc() && end == text + size;
    };
    if (int64_t value = 0; reads(value)) return tree_.put(Json(value));
    double value = 0;
    return reads(value) && tree_.put(json_of(value, {text, size}));
  }
  bool String(const char* text, Size size, bool) {
    return tree_.put(Json(std::string(text, size)));
  }
  bool Key(const char* text, Size size, bool) { return tree_.key(std::string(text, size)); }
  bool StartObject() { return tree_.open(Json::object()); }
  bool StartArray() { return tree_.open(Json::array()); }
  bool EndObject(Size) { return tree_.close(); }
  bool EndArray(Size) { return tree_.close(); }

 private:
  Tree tree_;
};

/// What RapidJSON reads, in a third of nlohmann's time. Nothing where it refuses the text, or might
/// take what is not JSON: nlohmann then says what is wrong, or reads it.
std::optional<Json> parse_fast(std::string_view text) {
  // RapidJSON reads on behind a text that ends inside a character, and makes invalid UTF-8 of half
  // of a surrogate pair.
  if (!is_utf8(text) || text.find("\\ud") != std::string_view::npos ||
      text.find("\\uD") != std::string_view::npos) {
    return std::nullopt;
  }
  using namespace automodel_rapidjson;
  // In place and recursive, no deeper than a Tree is, RapidJSON does without its stack.
  constexpr unsigned kFlags = kParseInsituFlag | kParseNumbersAsStringsFlag;
  std::string copy(text);
  InsituStringStream stream(copy.data());
  FastEvents events;
  if (Reader().Parse<kFlags>(stream, events).IsError()) return std::nullopt;
  return events.take();
}

/// nlohmann's events. What is wrong with a text is an error.
class Events final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Events(std::string_view name) : name_(name) {}

  Json take() { return tree_.take(); }

  bool null() override { return tree_.put(Json()); }
  bool boolean(bool value) override { return tree_.put(Json(value)); }
  bool number_integer(int64_t value) override { return tree_.put(Json(value)); }
  bool number_unsigned(uint64_t value) override {
    const bool fits = value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    return tree_.put(fits ? Json(value) : Json::big_integer(static_cast<double>(value)));
  }
  bool number_float(double value, const std::string& text) override {
    return tree_.put(json_of(value, text));
  }
  bool string(std::string& value) override { return tree_.put(Json(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool key(std::string& value) override { return tree_.key(std::move(value)); }
  bool end_object() override { return tree_.close(); }
  bool end_array() override { return tree_.close(); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    std::string reason = error.what();
    const size_t colon = reason.find(": ", reason.find("parse error"));
    if (colon != std::string::npos) reason = reason.substr(colon + 2);
    throw InputError(cat(name_, ": not valid JSON at byte ", position, ": ", reason));
  }

 private:
  bool open(Json container) {
    if (tree_.open(std::move(container))) return true;
    throw InputError(cat(name_, ": JSON nested deeper than ", Tree::kMaxDepth, " levels"));
  }

  std::string name_;
  Tree tree_;
};

void dump_string(std::string& out, const std::string& text) {
  out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void dump_double(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "Infinity" : "-Infinity";
  } else {
    out += shortest_repr(value);
  }
}

/// An integer of more than 64 bits, to the precision of a double.
std::string digits_of(double integer) {
  std::array<char, 400> text{};
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), integer, std::chars_format::fixed);
  return {text.data(), end};
}

void new_line(std::string& out, int indent, int depth) {
  out.push_back('\n');
  out.append(static_cast<size_t>(indent * depth), ' ');
}

void dump_value(std::string& out, const Json& value, int indent, int depth) {
  if (value.is_null()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_int()) {
    out += std::to_string(value.as_int());
  } else if (value.is_big_integer()) {
    out += digits_of(value.as_double());
  } else if (value.is_double()) {
    dump_double(out, value.as_double());
  } else if (value.is_string()) {
    dump_string(out, value.as_string());
  } else {
    const bool is_array = value.is_array();
    out.push_back(is_array ? '[' : '{');
    bool is_first = true;
    const auto separate = [&] {
      if (!is_first) out += indent >= 0 ? "," : ", ";
      if (indent >= 0) new_line(out, indent, depth + 1);
      is_first = false;
    };
    if (is_array) {
      for (const Json& element : value.as_array()) {
        separate();
        dump_value(out, element, indent, depth + 1);
      }
    } else {
      for (const auto& [key, member] : value.as_object()) {
        separate();
        dump_string(out, key);
        out += ": ";
        dump_value(out, member, indent, depth + 1);
      }
    }
    if (!is_first && indent >= 0) new_line(out, indent, depth);
    out.push_back(is_array ? ']' : '}');
  }
}

}  // namespace

Json::Json(double value) : value_(value) {}

Json::Json(uint64_t value) {
  if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    value_ = static_cast<int64_t>(value);
  } else {
    value_ = static_cast<double>(value);
  }
}

Json Json::big_integer(double value) {
  Json json;
  json.value_ = BigInteger{value};
  return json;
}

Json Json::parse(std::string_view text, std::string_view name) {
  // Both readers would take what follows it for no part of the text.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw InputError(cat(name, ": not valid JSON at byte ", zero + 1, ": a zero byte"));
  }
  std::string quoted;
  if (text.find("Infinity") != std::string_view::npos ||
      text.find("NaN") != std::string_view::npos) {
    quoted = quote_bare_floats(text);
    text = quoted;
  }
  if (std::optional<Json> value = parse_fast(text)) return *std::move(value);
  Events events(name);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  return events.take();
}

Json Json::parse_file(const std::string& path) {
  return parse(read_file(path), path);
}

const char* Json::kind() const {
  constexpr const char* kKinds[] = {"null",     "a boolean", "an integer", "a number",
                                    "a string", "an array",  "an object",  "an integer"};
  return kKinds[value_.index()];
}

namespace {
[[noreturn]] void wrong_kind(const Json& value, const char* wanted) {
  throw InputError(cat("expected ", wanted, ", found ", value.kind()));
}
}  // namespace

bool Json::as_bool() const {
  if (!is_bool()) wrong_kind(*this, "a boolean");
  return std::get<bool>(value_);
}

int64_t Json::as_int() const {
  if (is_double()) {
    const double number = as_double();
    if (number == std::floor(number) && std::abs(number) < 9e15) {
      return static_cast<int64_t>(number);
    }
  }
  if (!is_int()) wrong_kind(*this, "an integer");
  return std::get<int64_t>(value_);
}

double Json::as_double() const {
  if (is_int()) return static_cast<double>(std::get<int64_t>(value_));
  if (is_big_integer()) return std::get<BigInteger>(value_).value;
  if (!is_double()) wrong_kind(*this, "a number");
  return std::get<double>(value_);
}

const std::string& Json::as_string() const {
  if (!is_string()) wrong_kind(*this, "a string");
  return std::get<std::string>(value_);
}

const Json::Array& Json::as_array() const {
  if (!is_array()) wrong_kind(*this, "an array");
  return std::get<Array>(value_);
}

const Json::Object& Json::as_object() const {
  if (!is_object()) wrong_kind(*this, "an object");
  return std::get<Object>(value_);
}

Json::Array& Json::as_array() {
  if (!is_array()) wrong_kind(*this, "an array");
  return std::get<Array>(value_);
}

Json::Object& Json::as_object() {
  if (!is_object()) wrong_kind(*this, "an object");
  return std::get<Object>(value_);
}

namespace {
thread_local JsonWatch* newest_watch = nullptr;
}  // namespace

JsonWatch::JsonWatch() : outer_(std::exchange(newest_watch, this)) {}

JsonWatch::~JsonWatch() {
  newest_watch = outer_;
}

void JsonWatch::see(std::string_view key) {
  if (newest_watch != nullptr) newest_watch->keys_.emplace(key);
}

const Json* Json::find(std::string_view key) const {
  JsonWatch::see(key);
  if (!is_object()) return nullptr;
  for (const Member& member : std::get<Object>(value_)) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

Json* Json::find(std::string_view key) {
  return const_cast<Json*>(static_cast<const Json*>(this)->find(key));
}

const Json& Json::at(std::string_view key) const {
  const Json* member = find(key);
  if (member == nullptr) throw InputError(cat("missing key '", key, "'"));
  return *member;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object{};
  if (Json* member = find(key)) return *member;
  return as_object().emplace_back(std::string(key), Json()).second;
}

void Json::erase(std::string_view key) {
  if (!is_object()) return;
  std::erase_if(std::get<Object>(value_), [&](const Member& m) { return m.first == key; });
}

void Json::push_back(Json value) {
  as_array().push_back(std::move(value));
}

size_t Json::size() const {
  if (is_array()) return std::get<Array>(value_).size();
  if (is_object()) return std::get<Object>(value_).size();
  return 0;
}

namespace {
template <typename T, typename Read>
T get_or(const Json& object, std::string_view key, T fallback, Read read) {
  const Json* member = object.find(key);
  if (member == nullptr || member->is_null()) return fallback;
  try {
    return read(*member);
  } catch (const InputError& error) {
    throw InputError(cat("key '", key, "': ", error.what()));
  }
}
}  // namespace

bool Json::get(std::string_view key, bool fallback) const {
  return get_or(*this, key, fallback, [](const Json& j) { return j.as_bool(); });
}
int64_t Json::get(std::string_view key, int64_t fallback) const {
  return get_or(*this, key, fallback, [](const Json& j) { return j.as_int(); });
}
double Json::get(std::string_view key, double fallback) const {
  return get_or(*this, key, fallback, [](const Json& j) { return j.as_double(); });
}
std::string Json::get(std::string_view key, const char* fallback) const {
  return get_or(*this, key, std::string(fallback), [](const Json& j) { return j.as_string(); });
}

std::string Json::dump(int indent) const {
  std::string out;
  dump_value(out, *this, indent, 0);
  return out;
}

}  // namespace automodel
