#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/short_bytes.h"

namespace automodel::chat {

class Run;
struct Function;
struct Macro;
struct Loop;
struct Cycler;
struct Joiner;
class Iterator;

/// What a template does wrong while it is read or runs. The text is jinja2's or Python's where they
/// have one; the line and the column (both from 1) are added by whoever knows them.
struct Failure final : std::exception {
  explicit Failure(std::string text_) : text(std::move(text_)) {}
  Failure(std::string text_, int line_, int column_)
      : text(std::move(text_)), line(line_), column(column_) {}
  const char* what() const noexcept override { return text.c_str(); }

  std::string text;
  int line = 0;  ///< 0: not known yet
  int column = 0;
};

/// Memory for the values of one rendering (or of one template's constants): handed out piece by
/// piece and given back all at once, so values are plain pointers. Throws Failure past its limit.
class Arena final {
 public:
  explicit Arena(size_t max_bytes)
      : next_(first_), end_(first_ + sizeof(first_)), max_bytes_(max_bytes) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// An object that needs no destructor.
  template <typename T, typename... Arguments>
  T* make(Arguments&&... arguments) {
    return new (allocate(sizeof(T), alignof(T))) T{std::forward<Arguments>(arguments)...};
  }
  template <typename T>
  T* make_array(size_t count) {
    return static_cast<T*>(allocate(count * sizeof(T), alignof(T)));
  }
  void* allocate(size_t num_bytes, size_t alignment) {
    const size_t padding = (0 - reinterpret_cast<uintptr_t>(next_)) & (alignment - 1);
    if (num_bytes + padding > static_cast<size_t>(end_ - next_)) return allocate_slow(num_bytes);
    char* begin = next_ + padding;
    next_ = begin + num_bytes;
    return begin;
  }

  /// `left` and `right` one behind the other; costs only `right` when `left` is what was made last.
  std::string_view concatenate(std::string_view left, std::string_view right);
  std::string_view copy(std::string_view text) { return concatenate({}, text); }

 private:
  void* allocate_slow(size_t num_bytes);

  char* next_;
  char* end_;
  std::vector<std::unique_ptr<char[]>> chunks_;
  size_t num_bytes_ = 0;
  size_t max_bytes_;
  alignas(std::max_align_t) char first_[8192];  // short renderings need no other
};

enum class Kind : uint8_t {
  kMissing,  ///< no value at all: an argument that was not given, a variable that was never set
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kDictView,
  kRange,
  kIterator,
  kNamespace,
  kFunction,
  kMacro,
  kLoop,
  kCycler,
  kJoiner,
};

/// A text: UTF-8, never changed.
struct Text {
  std::string_view bytes;
  bool is_markup = false;           ///< markupsafe's Markup
  mutable int64_t num_points = -1;  ///< code points; -1: not counted yet
};

struct Undefined;
struct List;
struct Dict;
struct DictView;
struct Range;

/// A Python value. Copies share what they point to, which an Arena or the caller owns.
struct Value {
  Kind kind = Kind::kMissing;
  union {
    bool boolean;
    int64_t integer;
    double real;
    const Text* text;
    const Undefined* undefined;
    List* list;  // also kTuple
    Dict* dict;  // also kNamespace
    const DictView* view;
    const Range* range;
    Iterator* iterator;
    const Function* function;
    const Macro* macro;
    Loop* loop;
    Cycler* cycler;
    Joiner* joiner;
  };

  Value() : integer(0) {}
  static Value none() { return of(Kind::kNone); }
  static Value from(bool value) {
    Value out = of(Kind::kBool);
    out.boolean = value;
    return out;
  }
  static Value from(int64_t value) {
    Value out = of(Kind::kInt);
    out.integer = value;
    return out;
  }
  static Value from(double value) {
    Value out = of(Kind::kFloat);
    out.real = value;
    return out;
  }
  static Value from(const Text* value) {
    Value out = of(Kind::kString);
    out.text = value;
    return out;
  }
  static Value from(const Undefined* value) {
    Value out = of(Kind::kUndefined);
    out.undefined = value;
    return out;
  }
  static Value from(Kind kind, List* value) {
    Value out = of(kind);
    out.list = value;
    return out;
  }
  static Value from(Kind kind, Dict* value) {
    Value out = of(kind);
    out.dict = value;
    return out;
  }

  bool is(Kind other) const { return kind == other; }
  bool is_missing() const { return kind == Kind::kMissing; }
  bool is_undefined() const { return kind == Kind::kUndefined; }
  bool is_none() const { return kind == Kind::kNone; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_sequence() const { return kind == Kind::kList || kind == Kind::kTuple; }
  /// An int for Python: bool is one.
  bool is_integral() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool is_number() const { return is_integral() || kind == Kind::kFloat; }
  int64_t as_integer() const { return kind == Kind::kBool ? (boolean ? 1 : 0) : integer; }
  double as_real() const { return kind == Kind::kFloat ? real : static_cast<double>(as_integer()); }

 private:
  static Value of(Kind kind) {
    Value out;
    out.kind = kind;
    return out;
  }
};

/// jinja2's Undefined: what is not there, and how to say so.
struct Undefined {
  std::string_view hint;  ///< the whole message, if not empty
  Value object;           ///< what was asked; missing for a variable
  Value name;             ///< for what
};

/// A list or a tuple; only what makes it appends to it.
struct List {
  Value* items = nullptr;
  size_t size = 0;
  size_t capacity = 0;
  bool is_group = false;  ///< a pair of groupby: has attributes `grouper` and `list`

  void append(Arena& arena, Value value);
  std::span<Value> span() const { return {items, size}; }
};

/// A dict, in order of insertion.
struct Dict {
  struct Entry {
    Value key;
    Value value;
  };
  Entry* entries = nullptr;
  size_t size = 0;
  size_t capacity = 0;
  uint32_t* slots = nullptr;  ///< of large ones: hash to entry plus one, a power of two of them
  size_t num_slots = 0;

  const Value* find(std::string_view key) const {
    if (slots != nullptr) return find_by_hash(key);
    for (size_t i = 0; i < size; ++i) {
      const Value& at = entries[i].key;
      if (at.is_string() && is_same(at.text->bytes, key)) return &entries[i].value;
    }
    return nullptr;
  }
  /// Throws Failure for a key that has no hash.
  const Value* find(Run& run, const Value& key) const;
  void set(Run& run, Value key, Value value);
  /// A key that is known not to be there yet, while the dict has no slots.
  void append(Arena& arena, Value key, Value value);

 private:
  const Value* find_by_hash(std::string_view key) const;
  void reserve(Arena& arena);
  void rebuild_slots(Run& run);
  size_t find_slot(Run& run, const Value& key, size_t hash) const;
};

/// dict.keys(), values() or items().
struct DictView {
  enum class Part : uint8_t { kKeys, kValues, kItems };
  const Dict* dict;
  Part part;
};

struct Range {
  int64_t start;
  int64_t stop;
  int64_t step;
  int64_t size;
};

/// What is gone through once, piece by piece. Lives in an Arena: no destructor runs.
class Iterator {
 public:
  explicit Iterator(const char* type_name) : type_name_(type_name) {}
  /// Sets `value` to the next one; false at the end.
  virtual bool next(Run& run, Value& value) = 0;
  const char* type_name() const { return type_name_; }

 protected:
  ~Iterator() = default;

 private:
  const char* type_name_;
};

struct NamedValue {
  std::string_view name;
  Value value;
};

/// Arguments of a call.
struct Arguments {
  std::span<const Value> positional;
  std::span<const NamedValue> named;
};

/// A function of Python's or jinja2's.
struct Builtin {
  std::string_view name;
  Value (*call)(Run& run, const Value& self, const Arguments& arguments);
};

/// A builtin, with the object whose method it is.
struct Function {
  const Builtin* builtin;
  Value self;
};

struct Cycler {
  std::span<const Value> items;
  size_t position = 0;
};

struct Joiner {
  Value separator;
  bool is_used = false;
};

/// type(value).__name__.
const char* type_name(const Value& value);
/// jinja2's name of an object in messages: "dict object", "None".
std::string object_type_name(const Value& value);
bool is_true(Run& run, const Value& value);
bool equals(Run& run, const Value& left, const Value& right);
/// left < right; throws Failure "'<' not supported between ...".
bool is_less(Run& run, const Value& left, const Value& right, const char* symbol = "<");
size_t hash_of(Run& run, const Value& value);
/// str(value) and repr(value), appended.
void append_str(Run& run, const Value& value, std::string& out);
void append_repr(Run& run, const Value& value, std::string& out);
std::string repr(Run& run, const Value& value);
void append_repr(std::string_view text, std::string& out);
/// Python's repr of a float.
std::string float_repr(double value);
/// Code points of a text.
int64_t length_of(const Text& text);
/// len(value); throws Failure where there is none.
int64_t length_of(const Value& value);
/// What the message of an undefined value says.
std::string undefined_message(Run& run, const Undefined& undefined);
[[noreturn]] void fail_undefined(Run& run, const Value& value);

}  // namespace automodel::chat
