#include "chat/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>

#include "chat/characters.h"
#include "chat/iteration.h"
#include "chat/run.h"
#include "core/text.h"

namespace automodel::chat {

void* Arena::allocate_slow(size_t num_bytes) {
  constexpr size_t kSmallest = size_t{1} << 14;
  const size_t size = std::max(kSmallest * std::min<size_t>(64, 1 + chunks_.size() * 2), num_bytes);
  num_bytes_ += size;
  if (num_bytes_ > max_bytes_) {
    throw Failure(cat("the template needs more than ", format_bytes(max_bytes_), " of memory"));
  }
  chunks_.push_back(std::unique_ptr<char[]>(new char[size]));
  char* begin = chunks_.back().get();  // aligned for every type, as new is
  next_ = begin + num_bytes;
  end_ = begin + size;
  return begin;
}

std::string_view Arena::concatenate(std::string_view left, std::string_view right) {
  const bool is_last = !left.empty() && left.data() + left.size() == next_;
  if (is_last && right.size() <= static_cast<size_t>(end_ - next_)) {
    std::memcpy(next_, right.data(), right.size());
    next_ += right.size();
    return {left.data(), left.size() + right.size()};
  }
  const size_t size = left.size() + right.size();
  // A text that grows finds room behind it.
  const size_t room = !left.empty() && size > 256 ? size : 0;
  char* begin = static_cast<char*>(allocate(size + room, 1));
  if (!left.empty()) std::memcpy(begin, left.data(), left.size());
  if (!right.empty()) std::memcpy(begin + left.size(), right.data(), right.size());
  if (room > 0 && begin + size + room == next_) next_ -= room;
  return {begin, size};
}

void List::append(Arena& arena, Value value) {
  if (size == capacity) {
    const size_t larger = capacity == 0 ? 4 : capacity * 2;
    Value* copy = arena.make_array<Value>(larger);
    std::copy(items, items + size, copy);
    items = copy;
    capacity = larger;
  }
  items[size++] = value;
}

namespace {
constexpr size_t kNumLinear = 12;  // entries that are searched one by one
}

const Value* Dict::find_by_hash(std::string_view key) const {
  const size_t hash = std::hash<std::string_view>()(key);
  for (size_t slot = hash & (num_slots - 1);; slot = (slot + 1) & (num_slots - 1)) {
    if (slots[slot] == 0) return nullptr;
    const Entry& entry = entries[slots[slot] - 1];
    if (entry.key.is_string() && is_same(entry.key.text->bytes, key)) return &entry.value;
  }
}

size_t Dict::find_slot(Run& run, const Value& key, size_t hash) const {
  size_t slot = hash & (num_slots - 1);
  while (slots[slot] != 0 && !equals(run, entries[slots[slot] - 1].key, key)) {
    run.step();
    slot = (slot + 1) & (num_slots - 1);
  }
  return slot;
}

const Value* Dict::find(Run& run, const Value& key) const {
  if (key.is_string()) return find(key.text->bytes);
  const size_t hash = hash_of(run, key);
  if (slots == nullptr) {
    for (size_t i = 0; i < size; ++i) {
      if (equals(run, entries[i].key, key)) return &entries[i].value;
    }
    return nullptr;
  }
  const size_t slot = find_slot(run, key, hash);
  return slots[slot] == 0 ? nullptr : &entries[slots[slot] - 1].value;
}

void Dict::reserve(Arena& arena) {
  if (size < capacity) return;
  const size_t larger = capacity == 0 ? 4 : capacity * 2;
  Entry* copy = arena.make_array<Entry>(larger);
  std::copy(entries, entries + size, copy);
  entries = copy;
  capacity = larger;
}

void Dict::append(Arena& arena, Value key, Value value) {
  reserve(arena);
  entries[size++] = {key, value};
}

void Dict::rebuild_slots(Run& run) {
  num_slots = 64;
  while (num_slots < size * 4) num_slots *= 2;
  slots = run.arena.make_array<uint32_t>(num_slots);
  std::fill(slots, slots + num_slots, 0);
  for (size_t i = 0; i < size; ++i) {
    slots[find_slot(run, entries[i].key, hash_of(run, entries[i].key))] =
        static_cast<uint32_t>(i + 1);
  }
}

void Dict::set(Run& run, Value key, Value value) {
  if (const Value* old = find(run, key)) {
    *const_cast<Value*>(old) = value;
    return;
  }
  append(run.arena, key, value);
  if (slots != nullptr && size * 2 < num_slots) {
    slots[find_slot(run, key, hash_of(run, key))] = static_cast<uint32_t>(size);
  } else if (size > kNumLinear) {
    rebuild_slots(run);
  }
}

const char* type_name(const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.text->is_markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kDictView:
      return value.view->part == DictView::Part::kKeys     ? "dict_keys"
             : value.view->part == DictView::Part::kValues ? "dict_values"
                                                           : "dict_items";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return value.iterator->type_name();
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return value.function->self.is_missing() ? "function" : "builtin_function_or_method";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

std::string object_type_name(const Value& value) {
  if (value.is_none()) return "None";
  switch (value.kind) {
    case Kind::kNamespace:
    case Kind::kCycler:
    case Kind::kJoiner:
      return cat("jinja2.utils.", type_name(value), " object");
    case Kind::kMacro:
    case Kind::kLoop:
    case Kind::kUndefined:
      return cat("jinja2.runtime.", type_name(value), " object");
    default:
      return cat(type_name(value), " object");
  }
}

bool is_true(Run& run, const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.real != 0;
    case Kind::kString:
      return !value.text->bytes.empty();
    case Kind::kList:
    case Kind::kTuple:
      return value.list->size > 0;
    case Kind::kDict:
      return value.dict->size > 0;
    case Kind::kDictView:
      return value.view->dict->size > 0;
    case Kind::kRange:
      return value.range->size > 0;
    case Kind::kLoop:
      return loop_length(run, *value.loop) > 0;
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kFunction:
    case Kind::kMacro:
    case Kind::kCycler:
    case Kind::kJoiner:
      return true;
  }
  return true;
}

namespace {

bool equal_lists(Run& run, const List& left, const List& right) {
  if (left.size != right.size) return false;
  const Run::Depth depth(run);
  for (size_t i = 0; i < left.size; ++i) {
    if (!equals(run, left.items[i], right.items[i])) return false;
  }
  return true;
}

bool equal_dicts(Run& run, const Dict& left, const Dict& right) {
  if (left.size != right.size) return false;
  const Run::Depth depth(run);
  for (size_t i = 0; i < left.size; ++i) {
    const Value* other = right.find(run, left.entries[i].key);
    if (other == nullptr || !equals(run, left.entries[i].value, *other)) return false;
  }
  return true;
}

bool equal_views(Run& run, const DictView& left, const DictView& right) {
  if (left.part != right.part || left.part == DictView::Part::kValues) return &left == &right;
  if (left.part == DictView::Part::kItems) return equal_dicts(run, *left.dict, *right.dict);
  if (left.dict->size != right.dict->size) return false;
  for (size_t i = 0; i < left.dict->size; ++i) {
    if (right.dict->find(run, left.dict->entries[i].key) == nullptr) return false;
  }
  return true;
}

bool equal_ranges(const Range& left, const Range& right) {
  if (left.size != right.size) return false;
  if (left.size == 0) return true;
  return left.start == right.start && (left.size == 1 || left.step == right.step);
}

/// A number that both kinds of numbers can be compared by without rounding.
bool equal_numbers(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) return left.as_integer() == right.as_integer();
  if (left.is(Kind::kFloat) && right.is(Kind::kFloat)) return left.real == right.real;
  const double real = left.is(Kind::kFloat) ? left.real : right.real;
  const int64_t integer = left.is(Kind::kFloat) ? right.as_integer() : left.as_integer();
  if (!(real >= -9223372036854775808.0 && real < 9223372036854775808.0)) return false;
  return real == std::floor(real) && static_cast<int64_t>(real) == integer;
}

}  // namespace

bool equals(Run& run, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return equal_numbers(left, right);
  if (left.kind != right.kind) return false;
  run.step();
  switch (left.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (left.text->bytes.size() != right.text->bytes.size()) return false;
      run.step_bytes(left.text->bytes.size());
      return is_same(left.text->bytes, right.text->bytes);
    case Kind::kList:
    case Kind::kTuple:
      return equal_lists(run, *left.list, *right.list);
    case Kind::kDict:
      return equal_dicts(run, *left.dict, *right.dict);
    case Kind::kDictView:
      return equal_views(run, *left.view, *right.view);
    case Kind::kRange:
      return equal_ranges(*left.range, *right.range);
    case Kind::kFunction:
      return left.function->builtin == right.function->builtin &&
             left.function->self.integer == right.function->self.integer;
    default:
      return left.integer == right.integer;  // the same object
  }
}

bool is_less(Run& run, const Value& left, const Value& right, const char* symbol) {
  run.step();
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) return left.as_integer() < right.as_integer();
    return left.as_real() < right.as_real();
  }
  if (left.is_string() && right.is_string()) {
    run.step_bytes(left.text->bytes.size());
    return left.text->bytes < right.text->bytes;  // UTF-8 sorts as its code points do
  }
  if (left.is_sequence() && left.kind == right.kind) {
    const Run::Depth depth(run);
    const size_t size = std::min(left.list->size, right.list->size);
    for (size_t i = 0; i < size; ++i) {
      if (!equals(run, left.list->items[i], right.list->items[i])) {
        return is_less(run, left.list->items[i], right.list->items[i], symbol);
      }
    }
    return left.list->size < right.list->size;
  }
  if (left.is_undefined()) fail_undefined(run, left);
  if (right.is_undefined()) fail_undefined(run, right);
  // a > b is asked as b < a, and a <= b as not b < a.
  const std::string_view shown = symbol;
  const bool is_swapped = shown == ">" || shown == "<=";
  throw Failure(cat("'", symbol, "' not supported between instances of '",
                    type_name(is_swapped ? right : left), "' and '",
                    type_name(is_swapped ? left : right), "'"));
}

size_t hash_of(Run& run, const Value& value) {
  run.step();
  switch (value.kind) {
    case Kind::kString:
      run.step_bytes(value.text->bytes.size());
      return std::hash<std::string_view>()(value.text->bytes);
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<int64_t>()(value.as_integer());
    case Kind::kFloat: {
      const bool is_whole = value.real == std::floor(value.real) && std::abs(value.real) < 9e18;
      if (is_whole) return std::hash<int64_t>()(static_cast<int64_t>(value.real));
      return std::hash<double>()(value.real);
    }
    case Kind::kTuple: {
      const Run::Depth depth(run);
      size_t hash = 7;
      for (const Value& item : value.list->span()) hash = hash * 31 + hash_of(run, item);
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      throw Failure(cat("unhashable type: '", type_name(value), "'"));
    case Kind::kUndefined:
    case Kind::kNone:
      return static_cast<size_t>(value.kind);
    case Kind::kRange:
      return static_cast<size_t>(value.range->size);
    default:
      return std::hash<int64_t>()(value.integer);
  }
}

int64_t length_of(const Text& text) {
  if (text.num_points < 0) text.num_points = count_code_points(text.bytes);
  return text.num_points;
}

int64_t length_of(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return length_of(*value.text);
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.list->size);
    case Kind::kDict:
      return static_cast<int64_t>(value.dict->size);
    case Kind::kDictView:
      return static_cast<int64_t>(value.view->dict->size);
    case Kind::kRange:
      return value.range->size;
    default:
      throw Failure(cat("object of type '", type_name(value), "' has no len()"));
  }
}

std::string undefined_message(Run& run, const Undefined& undefined) {
  if (!undefined.hint.empty()) return std::string(undefined.hint);
  if (undefined.object.is_missing()) return cat(repr(run, undefined.name), " is undefined");
  const std::string object = object_type_name(undefined.object);
  if (!undefined.name.is_string()) {
    return cat(object, " has no element ", repr(run, undefined.name));
  }
  return cat("'", object, "' has no attribute ", repr(run, undefined.name));
}

void fail_undefined(Run& run, const Value& value) {
  throw Failure(undefined_message(run, *value.undefined));
}

}  // namespace automodel::chat
