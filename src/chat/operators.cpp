#include "chat/operators.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "chat/characters.h"
#include "chat/escaping.h"
#include "chat/iteration.h"
#include "chat/methods.h"
#include "chat/text_format.h"
#include "core/text.h"

namespace automodel::chat {

namespace {

[[noreturn]] void fail_overflow() {
  throw Failure("an integer of the template does not fit into 64 bits");
}

[[noreturn]] void fail_operands(const char* symbol, const Value& left, const Value& right) {
  throw Failure(cat("unsupported operand type(s) for ", symbol, ": '", type_name(left), "' and '",
                    type_name(right), "'"));
}

int64_t floor_divide(int64_t left, int64_t right) {
  const int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

double floor_modulo(double left, double right) {
  double rest = std::fmod(left, right);
  if (rest != 0) {
    if ((right < 0) != (rest < 0)) rest += right;
  } else {
    rest = std::copysign(0.0, right);
  }
  return rest;
}

double floor_divide(double left, double right) {
  const double rest = floor_modulo(left, right);
  const double quotient = (left - rest) / right;
  if (quotient == 0) return std::copysign(0.0, left / right);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw Failure("0.0 cannot be raised to a negative power");
    return Value::from(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t out = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(out, base, &out)) fail_overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return Value::from(out);
}

Value integer_operation(Op op, int64_t left, int64_t right) {
  int64_t out = 0;
  switch (op) {
    case Op::kAdd:
      if (__builtin_add_overflow(left, right, &out)) fail_overflow();
      return Value::from(out);
    case Op::kSubtract:
      if (__builtin_sub_overflow(left, right, &out)) fail_overflow();
      return Value::from(out);
    case Op::kMultiply:
      if (__builtin_mul_overflow(left, right, &out)) fail_overflow();
      return Value::from(out);
    case Op::kPower:
      return integer_power(left, right);
    default:
      break;
  }
  if (right == 0) {
    throw Failure(op == Op::kDivide   ? "division by zero"
                  : op == Op::kModulo ? "integer modulo by zero"
                                      : "integer division or modulo by zero");
  }
  if (op == Op::kDivide) {
    constexpr int64_t kExact = int64_t{1} << 53;
    if (std::abs(static_cast<double>(left)) > kExact ||
        std::abs(static_cast<double>(right)) > kExact) {
      return Value::from(static_cast<double>(static_cast<long double>(left) / right));
    }
    return Value::from(static_cast<double>(left) / static_cast<double>(right));
  }
  if (right == -1) {  // the one quotient that does not fit
    if (op == Op::kModulo) return Value::from(int64_t{0});
    if (__builtin_sub_overflow(int64_t{0}, left, &out)) fail_overflow();
    return Value::from(out);
  }
  const int64_t quotient = floor_divide(left, right);
  return Value::from(op == Op::kFloorDivide ? quotient : left - quotient * right);
}

Value real_operation(Op op, double left, double right) {
  switch (op) {
    case Op::kAdd:
      return Value::from(left + right);
    case Op::kSubtract:
      return Value::from(left - right);
    case Op::kMultiply:
      return Value::from(left * right);
    case Op::kDivide:
      if (right == 0) throw Failure("float division by zero");
      return Value::from(left / right);
    case Op::kFloorDivide:
      if (right == 0) throw Failure("float floor division by zero");
      return Value::from(floor_divide(left, right));
    case Op::kModulo:
      if (right == 0) throw Failure("float modulo");
      return Value::from(floor_modulo(left, right));
    default:
      break;
  }
  if (left == 0 && right < 0) throw Failure("0.0 cannot be raised to a negative power");
  if (left < 0 && right != std::floor(right)) {
    throw Failure("a power of a negative number is complex");
  }
  const double out = std::pow(left, right);
  if (std::isinf(out) && !std::isinf(left) && !std::isinf(right)) {
    throw Failure("(34, 'Numerical result out of range')");
  }
  return Value::from(out);
}

Value add_texts(Run& run, const Text& left, const Text& right) {
  run.step_bytes(right.bytes.size());
  if (left.is_markup != right.is_markup) {
    std::string out = left.is_markup ? std::string(left.bytes) : escaped_html(left.bytes);
    out += right.is_markup ? std::string(right.bytes) : escaped_html(right.bytes);
    return Value::from(run.arena.make<Text>(run.arena.copy(out), true));
  }
  Text* out = run.arena.make<Text>(run.arena.concatenate(left.bytes, right.bytes), left.is_markup);
  return Value::from(out);
}

Value repeat(Run& run, const Value& sequence, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (sequence.is_string()) {
    const std::string_view bytes = sequence.text->bytes;
    const auto total = static_cast<double>(bytes.size()) * static_cast<double>(count);
    if (total > 1e9) throw Failure("a text of the template is too long");
    run.step_bytes(bytes.size() * static_cast<size_t>(count));
    const size_t size = bytes.size() * static_cast<size_t>(count);
    char* out = run.arena.make_array<char>(size);
    for (size_t at = 0; at < size; at += bytes.size()) {
      std::copy(bytes.begin(), bytes.end(), out + at);
    }
    return Value::from(run.arena.make<Text>(std::string_view(out, size), sequence.text->is_markup));
  }
  const List& list = *sequence.list;
  if (static_cast<double>(list.size) * static_cast<double>(count) > 1e7) {
    throw Failure("a list of the template is too long");
  }
  Value out = run.new_list(list.size * static_cast<size_t>(count), sequence.kind);
  for (int64_t i = 0; i < count; ++i) {
    run.step(list.size + 1);
    for (const Value& item : list.span()) out.list->append(run.arena, item);
  }
  return out;
}

const char* symbol_of(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSubtract:
      return "-";
    case Op::kMultiply:
      return "*";
    case Op::kDivide:
      return "/";
    case Op::kFloorDivide:
      return "//";
    case Op::kModulo:
      return "%";
    default:
      return "** or pow()";
  }
}

Value add_sequences(Run& run, const Value& left, const Value& right) {
  Value out = run.new_list(left.list->size + right.list->size, left.kind);
  run.step(left.list->size + right.list->size);
  for (const Value& item : left.list->span()) out.list->append(run.arena, item);
  for (const Value& item : right.list->span()) out.list->append(run.arena, item);
  return out;
}

[[noreturn]] void fail_add(const Value& left, const Value& right) {
  if (left.is_string()) {
    throw Failure(cat("can only concatenate str (not \"", type_name(right), "\") to str"));
  }
  if (left.is_sequence()) {
    throw Failure(cat("can only concatenate ", type_name(left), " (not \"", type_name(right),
                      "\") to ", type_name(left)));
  }
  fail_operands("+", left, right);
}

}  // namespace

Value binary_operation(Run& run, Op op, const Value& left, const Value& right) {
  if (left.is_string()) {
    if (op == Op::kAdd && right.is_string()) return add_texts(run, *left.text, *right.text);
    if (op == Op::kModulo) return percent_format(run, left, right);
    if (op == Op::kMultiply && right.is_integral()) return repeat(run, left, right.as_integer());
  }
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) {
      return integer_operation(op, left.as_integer(), right.as_integer());
    }
    return real_operation(op, left.as_real(), right.as_real());
  }
  if (left.is_undefined()) fail_undefined(run, left);
  if (right.is_undefined()) fail_undefined(run, right);
  if (op == Op::kAdd) {
    if (left.is_sequence() && left.kind == right.kind) return add_sequences(run, left, right);
    fail_add(left, right);
  }
  if (op == Op::kMultiply) {
    if (left.is_sequence() && right.is_integral()) return repeat(run, left, right.as_integer());
    if (left.is_integral() && (right.is_string() || right.is_sequence())) {
      return repeat(run, right, left.as_integer());
    }
    if (left.is_string() || left.is_sequence() || right.is_string() || right.is_sequence()) {
      const bool is_left = left.is_string() || left.is_sequence();
      throw Failure(cat("can't multiply sequence by non-int of type '",
                        type_name(is_left ? right : left), "'"));
    }
  }
  fail_operands(symbol_of(op), left, right);
}

Value negative(Run& run, const Value& value) {
  if (value.is(Kind::kFloat)) return Value::from(-value.real);
  if (value.is_integral()) return integer_operation(Op::kSubtract, 0, value.as_integer());
  if (value.is_undefined()) fail_undefined(run, value);
  throw Failure(cat("bad operand type for unary -: '", type_name(value), "'"));
}

Value positive(Run& run, const Value& value) {
  if (value.is(Kind::kFloat)) return value;
  if (value.is_integral()) return Value::from(value.as_integer());
  if (value.is_undefined()) fail_undefined(run, value);
  throw Failure(cat("bad operand type for unary +: '", type_name(value), "'"));
}

bool contains(Run& run, const Value& container, const Value& value) {
  switch (container.kind) {
    case Kind::kString:
      if (!value.is_string()) {
        throw Failure(cat("'in <string>' requires string as left operand, not ", type_name(value)));
      }
      run.step_bytes(container.text->bytes.size());
      return find_in(container.text->bytes, value.text->bytes) != std::string_view::npos;
    case Kind::kDict:
      return container.dict->find(run, value) != nullptr;
    case Kind::kDictView:
      if (container.view->part == DictView::Part::kKeys) {
        return container.view->dict->find(run, value) != nullptr;
      }
      break;
    case Kind::kRange: {
      if (!value.is_number()) return false;
      const Range& range = *container.range;
      const double place =
          (value.as_real() - static_cast<double>(range.start)) / static_cast<double>(range.step);
      return place >= 0 && place < static_cast<double>(range.size) && place == std::floor(place);
    }
    default:
      break;
  }
  if (!is_iterable(container)) {
    throw Failure(cat("argument of type '", type_name(container), "' is not iterable"));
  }
  Items items(run, container);
  for (Value item; items.next(item);) {
    if (equals(run, item, value)) return true;
  }
  return false;
}

bool compare(Run& run, Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::kEq:
      return equals(run, left, right);
    case Comparison::kNe:
      return !equals(run, left, right);
    case Comparison::kIn:
      return contains(run, right, left);
    case Comparison::kNotIn:
      return !contains(run, right, left);
    default:
      break;
  }
  const bool is_nan = (left.is(Kind::kFloat) && std::isnan(left.real)) ||
                      (right.is(Kind::kFloat) && std::isnan(right.real));
  if (is_nan && left.is_number() && right.is_number()) return false;
  switch (comparison) {
    case Comparison::kLt:
      return is_less(run, left, right, "<");
    case Comparison::kGt:
      return is_less(run, right, left, ">");
    case Comparison::kLe:
      return !is_less(run, right, left, "<=");
    default:
      return !is_less(run, left, right, ">=");
  }
}

namespace {

int64_t index_part(const Value& value) {
  if (value.is_integral()) return value.as_integer();
  throw Failure("slice indices must be integers or None or have an __index__ method");
}

/// Python's slice.indices of a length.
struct Indices {
  int64_t start, stop, step;

  int64_t size() const {
    if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
    return stop < start ? (start - stop - 1) / -(step) + 1 : 0;
  }
};

Indices indices_of(const Value& start, const Value& stop, const Value& step, int64_t length) {
  Indices out{};
  const auto is_given = [](const Value& value) { return !value.is_missing() && !value.is_none(); };
  out.step = is_given(step) ? index_part(step) : 1;
  if (out.step == 0) throw Failure("slice step cannot be zero");
  out.step = std::max(out.step, -(int64_t{1} << 62));
  const int64_t lowest = out.step < 0 ? -1 : 0;
  const int64_t highest = out.step < 0 ? length - 1 : length;
  const auto place = [&](const Value& value, int64_t fallback) {
    if (!is_given(value)) return fallback;
    int64_t index = index_part(value);
    if (index < 0) index = std::max(index + length, lowest);
    return std::min(index, highest);
  };
  out.start = place(start, out.step < 0 ? highest : 0);
  out.stop = place(stop, out.step < 0 ? lowest : length);
  return out;
}

Value slice_text(Run& run, const Text& text, const Indices& indices) {
  run.step_bytes(text.bytes.size());
  const int64_t size = indices.size();
  const bool is_ascii = length_of(text) == static_cast<int64_t>(text.bytes.size());
  if (indices.step == 1) {
    const size_t begin = is_ascii ? static_cast<size_t>(indices.start)
                                  : byte_of_code_point(text.bytes, indices.start);
    const std::string_view rest = text.bytes.substr(std::min(begin, text.bytes.size()));
    const size_t end = is_ascii ? static_cast<size_t>(size) : byte_of_code_point(rest, size);
    return Value::from(run.arena.make<Text>(rest.substr(0, end), text.is_markup));
  }
  std::vector<std::string_view> points;
  for (size_t at = 0; at < text.bytes.size();) {
    const size_t begin = at;
    next_code_point(text.bytes, at);
    points.push_back(text.bytes.substr(begin, at - begin));
  }
  std::string out;
  for (int64_t i = 0; i < size; ++i) {
    out += points[static_cast<size_t>(indices.start + i * indices.step)];
  }
  return Value::from(run.arena.make<Text>(run.arena.copy(out), text.is_markup));
}

}  // namespace

Value slice(Run& run, const Value& object, const Value& start, const Value& stop,
            const Value& step) {
  if (object.is_undefined()) fail_undefined(run, object);
  if (object.is(Kind::kDict)) throw Failure("unhashable type: 'slice'");
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::kRange)) {
    throw Failure(cat("'", type_name(object), "' object is not subscriptable"));
  }
  const Indices indices = indices_of(start, stop, step, length_of(object));
  if (object.is_string()) return slice_text(run, *object.text, indices);
  const int64_t size = indices.size();
  if (object.is(Kind::kRange)) {
    const Range& range = *object.range;
    Value out;
    out.kind = Kind::kRange;
    out.range = run.arena.make<Range>(range.start + indices.start * range.step,
                                      range.start + indices.stop * range.step,
                                      range.step * indices.step, size);
    return out;
  }
  run.step(static_cast<size_t>(size));
  Value out = run.new_list(static_cast<size_t>(size), object.kind);
  for (int64_t i = 0; i < size; ++i) {
    const auto index = static_cast<size_t>(indices.start + i * indices.step);
    out.list->append(run.arena, object.list->items[index]);
  }
  return out;
}

namespace {

Value unsafe_undefined(Run& run, const Value& object, std::string_view name) {
  std::string quoted;
  append_repr(name, quoted);
  return run.undefined_hint(
      cat("access to attribute ", quoted, " of '", type_name(object), "' object is unsafe."));
}

/// object[key] of Python; missing for what raises a TypeError or a LookupError.
Value python_item(Run& run, const Value& object, const Value& key) {
  switch (object.kind) {
    case Kind::kUndefined:
      fail_undefined(run, object);
    case Kind::kDict: {
      if (key.is(Kind::kList) || key.is(Kind::kDict)) return {};
      const Value* value = object.dict->find(run, key);
      return value == nullptr ? Value{} : *value;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kString:
    case Kind::kRange: {
      if (!key.is_integral()) return {};
      const int64_t length = length_of(object);
      int64_t index = key.as_integer();
      if (index < 0) index += length;
      if (index < 0 || index >= length) return {};
      if (object.is_sequence()) return object.list->items[index];
      if (object.is(Kind::kRange)) {
        return Value::from(object.range->start + index * object.range->step);
      }
      return slice(run, object, Value::from(index), Value::from(index + 1), {});
    }
    default:
      return {};
  }
}

bool is_mutator(const Value& object, std::string_view name) {
  constexpr std::array<std::string_view, 8> kList = {"append", "clear", "pop",    "reverse",
                                                     "insert", "sort",  "extend", "remove"};
  constexpr std::array<std::string_view, 5> kDict = {"clear", "pop", "popitem", "setdefault",
                                                     "update"};
  if (object.is(Kind::kList)) return std::ranges::find(kList, name) != kList.end();
  if (object.is(Kind::kDict)) return std::ranges::find(kDict, name) != kDict.end();
  return false;
}

Value other_attribute(Run& run, const Value& object, std::string_view name) {
  if (object.is(Kind::kNamespace)) {
    const Value* value = object.dict->find(name);
    return value == nullptr ? Value{} : *value;
  }
  if (object.is(Kind::kLoop)) return loop_attribute(run, *object.loop, name);
  if (object.is(Kind::kMacro)) return macro_attribute(run, *object.macro, name);
  if (object.is(Kind::kCycler) && name == "current") {
    return object.cycler->items[object.cycler->position];
  }
  if (object.is(Kind::kTuple) && object.list->is_group && (name == "grouper" || name == "list")) {
    return object.list->items[name == "list" ? 1 : 0];
  }
  return {};
}

}  // namespace

Value python_attribute(Run& run, const Value& object, std::string_view name, bool& is_safe) {
  is_safe = true;
  if (object.is_undefined()) fail_undefined(run, object);
  Value value = other_attribute(run, object, name);
  if (value.is_missing()) {
    if (const Builtin* method = find_method(object.kind, name)) {
      value.kind = Kind::kFunction;
      value.function = run.arena.make<Function>(method, object);
    } else if (is_internal_name(object, name) || is_mutator(object, name)) {
      is_safe = false;
    }
  }
  if (!value.is_missing() && name.starts_with("_")) is_safe = false;
  return value;
}

Value get_attribute(Run& run, const Value& object, const Value& name) {
  bool is_safe = true;
  // What a dict holds is asked for most; its methods go before its keys.
  const Value attribute = python_attribute(run, object, name.text->bytes, is_safe);
  if (!is_safe) return unsafe_undefined(run, object, name.text->bytes);
  if (!attribute.is_missing()) return attribute;
  const Value item = python_item(run, object, name);
  return item.is_missing() ? run.undefined_member(object, name) : item;
}

Value get_item(Run& run, const Value& object, const Value& key) {
  const Value item = python_item(run, object, key);
  if (!item.is_missing()) return item;
  if (key.is_string()) {
    bool is_safe = true;
    const Value attribute = python_attribute(run, object, key.text->bytes, is_safe);
    if (!is_safe) return unsafe_undefined(run, object, key.text->bytes);
    if (!attribute.is_missing()) return attribute;
  }
  return run.undefined_member(object, key);
}

}  // namespace automodel::chat
