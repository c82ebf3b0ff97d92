#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace automodel {

/// A JSON value. Objects keep the order of the file. Integers that fit are int64, other numbers
/// double; bare `Infinity`, `-Infinity`, `NaN` (Python's json) and `{"__float__": "Infinity"}`
/// (Hugging Face's config.json) are read as doubles. Values own what they hold.
class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;  ///< null
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(static_cast<int64_t>(value)) {}
  Json(int64_t value) : value_(value) {}
  Json(uint64_t value);
  Json(double value);
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}

  static Json object() { return Json(Object{}); }
  static Json array() { return Json(Array{}); }

  /// Parses one document. `name` (a file, or file:line) begins the error text:
  /// "name: not valid JSON at byte 17: ...". Throws InputError. Duplicate keys: the last wins.
  static Json parse(std::string_view text, std::string_view name);
  /// An integer beyond 64 bits.
  static Json big_integer(double value);
  /// Reads and parses a file; throws InputError.
  static Json parse_file(const std::string& path);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  /// Also of an integer beyond 64 bits, of which the nearest double is kept.
  bool is_double() const { return std::holds_alternative<double>(value_) || is_big_integer(); }
  bool is_big_integer() const { return std::holds_alternative<BigInteger>(value_); }
  bool is_number() const { return is_int() || is_double(); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  /// "null", "a boolean", "an integer", "a number", "a string", "an array", "an object".
  const char* kind() const;

  /// The value as a type; throws InputError naming both kinds when it has another.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;  ///< integers too
  const std::string& as_string() const;
  const Array& as_array() const;
  const Object& as_object() const;
  Array& as_array();
  Object& as_object();

  /// The member, or nullptr when there is none or this is not an object.
  const Json* find(std::string_view key) const;
  Json* find(std::string_view key);
  /// The member; throws InputError naming the key when there is none.
  const Json& at(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// The member, appended as null when there is none; a null becomes an object.
  Json& operator[](std::string_view key);
  void erase(std::string_view key);
  void push_back(Json value);
  /// Number of array elements or object members; 0 for other kinds.
  size_t size() const;

  /// The member as a type, or the fallback when it is absent or null.
  bool get(std::string_view key, bool fallback) const;
  int64_t get(std::string_view key, int64_t fallback) const;
  int64_t get(std::string_view key, int fallback) const {
    return get(key, static_cast<int64_t>(fallback));
  }
  double get(std::string_view key, double fallback) const;
  std::string get(std::string_view key, const char* fallback) const;
  std::string get(std::string_view key, const std::string& fallback) const {
    return get(key, fallback.c_str());
  }

  /// JSON text with Python's separators: one line for indent < 0, `{"a": 1, "b": [2, 3]}`, else one
  /// member per line, indented. Non-ASCII stays UTF-8. Infinity and NaN are written as Python does.
  std::string dump(int indent = -1) const;

  bool operator==(const Json& other) const = default;

 private:
  struct BigInteger {
    double value = 0;
    bool operator==(const BigInteger&) const = default;
  };

  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object, BigInteger>
      value_;
};

}  // namespace automodel
