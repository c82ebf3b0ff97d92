#include <array>
#include <cmath>

#include "chat/characters.h"
#include "chat/filters.h"
#include "chat/iteration.h"
#include "chat/operators.h"
#include "chat/parameters.h"
#include "core/text.h"

namespace automodel::chat {

namespace {

const Value& only(const Arguments& arguments) {
  check_positional("test", arguments, 1, 1);
  return arguments.positional[0];
}

template <Kind kind>
Value is_kind(Run&, const Arguments& arguments) {
  return Value::from(only(arguments).is(kind));
}

Value is_defined(Run&, const Arguments& arguments) {
  return Value::from(!only(arguments).is_undefined());
}

template <bool wanted>
Value is_bool(Run&, const Arguments& arguments) {
  const Value& value = only(arguments);
  return Value::from(value.is(Kind::kBool) && value.boolean == wanted);
}

Value is_number(Run&, const Arguments& arguments) {
  return Value::from(only(arguments).is_number());
}

template <int64_t rest>
Value has_rest(Run& run, const Arguments& arguments) {
  const Value remainder =
      binary_operation(run, Op::kModulo, only(arguments), Value::from(int64_t{2}));
  return Value::from(equals(run, remainder, Value::from(rest)));
}

Value is_divisible(Run& run, const Arguments& arguments) {
  const Parameters given("test_divisibleby", arguments, {"value", "num"}, 2);
  const Value remainder = binary_operation(run, Op::kModulo, given[0], given[1]);
  return Value::from(equals(run, remainder, Value::from(int64_t{0})));
}

template <Comparison comparison>
Value compares(Run& run, const Arguments& arguments) {
  check_positional("test", arguments, 2, 2);
  return Value::from(compare(run, comparison, arguments.positional[0], arguments.positional[1]));
}

Value is_in(Run& run, const Arguments& arguments) {
  const Parameters given("test_in", arguments, {"value", "seq"}, 2);
  return Value::from(contains(run, given[1], given[0]));
}

Value is_sequence(Run&, const Arguments& arguments) {
  const Value& value = only(arguments);
  return Value::from(value.is_string() || value.is_sequence() || value.is(Kind::kDict) ||
                     value.is(Kind::kRange) || value.is_undefined());
}

Value is_iterable_value(Run&, const Arguments& arguments) {
  return Value::from(is_iterable(only(arguments)));
}

Value is_callable(Run&, const Arguments& arguments) {
  const Value& value = only(arguments);
  return Value::from(value.is(Kind::kFunction) || value.is(Kind::kMacro) ||
                     value.is(Kind::kJoiner) || value.is(Kind::kLoop) || value.is_undefined());
}

Value is_same(Run& run, const Arguments& arguments) {
  const Parameters given("test_sameas", arguments, {"value", "other"}, 2);
  const Value& left = given[0];
  const Value& right = given[1];
  if (left.kind != right.kind) return Value::from(false);
  if (left.is_none()) return Value::from(true);
  if (left.is(Kind::kBool)) return Value::from(left.boolean == right.boolean);
  if (left.is(Kind::kInt) && left.integer >= -5 && left.integer <= 256) {
    return Value::from(left.integer == right.integer);
  }
  if (left.is_number() || left.is_string()) {
    if (!equals(run, left, right)) return Value::from(false);
    throw Failure("whether equal numbers or texts are one object is not known here");
  }
  return Value::from(left.integer == right.integer);
}

template <bool (*is_wanted)(char32_t), bool (*is_other)(char32_t)>
Value is_case(Run& run, const Arguments& arguments) {
  const std::string text = to_text(run, only(arguments));
  bool has_cased = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (is_other(c) || is_title(c)) return Value::from(false);
    has_cased = has_cased || is_wanted(c);
  }
  return Value::from(has_cased);
}

Value is_escaped(Run&, const Arguments& arguments) {
  const Value& value = only(arguments);
  return Value::from(value.is_string() && value.text->is_markup);
}

Value is_filter(Run&, const Arguments& arguments) {
  const Value& value = only(arguments);
  return Value::from(value.is_string() && find_filter(value.text->bytes) != nullptr);
}

Value is_test(Run&, const Arguments& arguments) {
  const Value& value = only(arguments);
  return Value::from(value.is_string() && find_test(value.text->bytes) != nullptr);
}

constexpr std::array kTests = {
    Test{"defined", is_defined},
    Test{"none", is_kind<Kind::kNone>},
    Test{"string", is_kind<Kind::kString>},
    Test{"mapping", is_kind<Kind::kDict>},
    Test{"undefined", is_kind<Kind::kUndefined>},
    Test{"iterable", is_iterable_value},
    Test{"sequence", is_sequence},
    Test{"true", is_bool<true>},
    Test{"false", is_bool<false>},
    Test{"boolean", is_kind<Kind::kBool>},
    Test{"integer", is_kind<Kind::kInt>},
    Test{"float", is_kind<Kind::kFloat>},
    Test{"number", is_number},
    Test{"odd", has_rest<1>},
    Test{"even", has_rest<0>},
    Test{"divisibleby", is_divisible},
    Test{"in", is_in},
    Test{"callable", is_callable},
    Test{"sameas", is_same},
    Test{"lower", is_case<is_lower, is_upper>},
    Test{"upper", is_case<is_upper, is_lower>},
    Test{"escaped", is_escaped},
    Test{"filter", is_filter},
    Test{"test", is_test},
    Test{"==", compares<Comparison::kEq>},
    Test{"eq", compares<Comparison::kEq>},
    Test{"equalto", compares<Comparison::kEq>},
    Test{"!=", compares<Comparison::kNe>},
    Test{"ne", compares<Comparison::kNe>},
    Test{">", compares<Comparison::kGt>},
    Test{"gt", compares<Comparison::kGt>},
    Test{"greaterthan", compares<Comparison::kGt>},
    Test{">=", compares<Comparison::kGe>},
    Test{"ge", compares<Comparison::kGe>},
    Test{"<", compares<Comparison::kLt>},
    Test{"lt", compares<Comparison::kLt>},
    Test{"lessthan", compares<Comparison::kLt>},
    Test{"<=", compares<Comparison::kLe>},
    Test{"le", compares<Comparison::kLe>},
};

}  // namespace

const Test* find_test(std::string_view name) {
  for (const Test& test : kTests) {
    if (name == test.name) return &test;
  }
  return nullptr;
}

}  // namespace automodel::chat
