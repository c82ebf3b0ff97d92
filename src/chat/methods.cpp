#include "chat/methods.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "chat/ast.h"
#include "chat/interpreter.h"
#include "chat/iteration.h"
#include "chat/parameters.h"
#include "chat/text_methods.h"
#include "core/text.h"

namespace automodel::chat {

namespace {

template <DictView::Part part>
Value view(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("dict method", arguments, 0, 0);
  Value out;
  out.kind = Kind::kDictView;
  out.view = run.arena.make<DictView>(self.dict, part);
  return out;
}

Value dict_get(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("get", arguments, 1, 2);
  const Value* value = self.dict->find(run, arguments.positional[0]);
  if (value != nullptr) return *value;
  return arguments.positional.size() > 1 ? arguments.positional[1] : Value::none();
}

Value dict_copy(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("copy", arguments, 0, 0);
  Value out = Value::from(Kind::kDict, run.arena.make<Dict>());
  for (size_t i = 0; i < self.dict->size; ++i) {
    run.step();
    out.dict->set(run, self.dict->entries[i].key, self.dict->entries[i].value);
  }
  return out;
}

Value list_copy(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("copy", arguments, 0, 0);
  return to_list(run, self);
}

Value sequence_index(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("index", arguments, 1, 3);
  const auto size = static_cast<int64_t>(self.list->size);
  const auto place = [&](size_t index, int64_t fallback) {
    if (arguments.positional.size() <= index) return fallback;
    const int64_t number = integer_argument(run, arguments.positional[index]);
    return number < 0 ? std::max<int64_t>(number + size, 0) : std::min(number, size);
  };
  const int64_t stop = place(2, size);
  for (int64_t i = place(1, 0); i < stop; ++i) {
    if (equals(run, self.list->items[i], arguments.positional[0])) return Value::from(i);
  }
  if (self.is(Kind::kTuple)) throw Failure("tuple.index(x): x not in tuple");
  throw Failure(cat(repr(run, arguments.positional[0]), " is not in list"));
}

Value sequence_count(Run& run, const Value& self, const Arguments& arguments) {
  check_positional("count", arguments, 1, 1);
  int64_t number = 0;
  for (const Value& item : self.list->span()) {
    if (equals(run, item, arguments.positional[0])) ++number;
  }
  return Value::from(number);
}

Value cycler_next(Run&, const Value& self, const Arguments& arguments) {
  check_positional("next", arguments, 0, 0);
  Cycler& cycler = *self.cycler;
  const Value out = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return out;
}

Value cycler_reset(Run&, const Value& self, const Arguments& arguments) {
  check_positional("reset", arguments, 0, 0);
  self.cycler->position = 0;
  return Value::none();
}

Value is_whole(Run&, const Value& self, const Arguments& arguments) {
  check_positional("is_integer", arguments, 0, 0);
  return Value::from(std::isfinite(self.real) && self.real == std::floor(self.real));
}

constexpr std::array kDictMethods = {
    Builtin{"get", dict_get},
    Builtin{"items", view<DictView::Part::kItems>},
    Builtin{"keys", view<DictView::Part::kKeys>},
    Builtin{"values", view<DictView::Part::kValues>},
    Builtin{"copy", dict_copy},
};
constexpr std::array kListMethods = {Builtin{"index", sequence_index},
                                     Builtin{"count", sequence_count}, Builtin{"copy", list_copy}};
constexpr std::array kTupleMethods = {Builtin{"index", sequence_index},
                                      Builtin{"count", sequence_count}};
constexpr std::array kCyclerMethods = {Builtin{"next", cycler_next},
                                       Builtin{"reset", cycler_reset}};
constexpr std::array kFloatMethods = {Builtin{"is_integer", is_whole}};

/// What Python's types have besides, by type.
constexpr std::array<std::string_view, 5> kOtherTextNames = {"encode", "format_map", "isidentifier",
                                                             "maketrans", "translate"};
constexpr std::array<std::string_view, 11> kOtherNumberNames = {
    "real",      "imag",     "conjugate",  "numerator",        "denominator", "bit_length",
    "bit_count", "to_bytes", "from_bytes", "as_integer_ratio", "hex"};
constexpr std::array<std::string_view, 1> kOtherDictNames = {"fromkeys"};
constexpr std::array<std::string_view, 4> kOtherViewNames = {"isdisjoint", "mapping", "start",
                                                             "stop"};

template <size_t size>
const Builtin* find_in(const std::array<Builtin, size>& methods, std::string_view name) {
  for (const Builtin& method : methods) {
    if (name == method.name) return &method;
  }
  return nullptr;
}

template <size_t size>
void refuse(const std::array<std::string_view, size>& names, const char* type,
            std::string_view name) {
  if (std::ranges::find(names, name) == names.end()) return;
  throw Failure(cat("the attribute '", name, "' of ", type, " is not known here"));
}

}  // namespace

const Builtin* find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kString:
      if (const Builtin* method = find_text_method(name)) return method;
      refuse(kOtherTextNames, "str", name);
      return nullptr;
    case Kind::kDict:
      if (const Builtin* method = find_in(kDictMethods, name)) return method;
      refuse(kOtherDictNames, "dict", name);
      return nullptr;
    case Kind::kList:
      return find_in(kListMethods, name);
    case Kind::kTuple:
      return find_in(kTupleMethods, name);
    case Kind::kCycler:
      return find_in(kCyclerMethods, name);
    case Kind::kFloat:
      if (const Builtin* method = find_in(kFloatMethods, name)) return method;
      [[fallthrough]];
    case Kind::kInt:
    case Kind::kBool:
      refuse(kOtherNumberNames, "numbers", name);
      return nullptr;
    case Kind::kDictView:
    case Kind::kRange:
      refuse(kOtherViewNames, "views and ranges", name);
      return nullptr;
    default:
      return nullptr;
  }
}

bool is_internal_name(const Value& object, std::string_view name) {
  if (!name.starts_with("__") || object.is(Kind::kNamespace)) return false;
  static constexpr std::array<std::string_view, 26> kNames = {
      "__class__",  "__init__",     "__new__",       "__doc__",          "__dir__",
      "__eq__",     "__ne__",       "__lt__",        "__le__",           "__gt__",
      "__ge__",     "__hash__",     "__str__",       "__repr__",         "__format__",
      "__sizeof__", "__reduce__",   "__reduce_ex__", "__len__",          "__getitem__",
      "__iter__",   "__contains__", "__setattr__",   "__getattribute__", "__subclasshook__",
      "__delattr__"};
  return std::ranges::find(kNames, name) != kNames.end();
}

bool is_dict_attribute(std::string_view name) {
  static constexpr std::array<std::string_view, 11> kNames = {
      "get",   "items", "keys",    "values",     "copy",  "fromkeys",
      "clear", "pop",   "popitem", "setdefault", "update"};
  return name.starts_with("_") || std::ranges::find(kNames, name) != kNames.end();
}

Value macro_attribute(Run& run, const Macro& macro, std::string_view name) {
  const Statement& node = *macro.statement;
  if (name == "name") return node.tag == Tag::kMacro ? node.name_value : Value::none();
  if (name == "arguments") {
    Value out = run.new_list(node.parameters.size(), Kind::kTuple);
    for (const ExpressionPtr& item : node.parameters) {
      out.list->append(run.arena, item->name_value);
    }
    return out;
  }
  if (name == "catch_kwargs") return Value::from(node.keywords_slot >= 0);
  if (name == "caller") return Value::from(node.caller_slot >= 0);
  if (name == "explicit_caller") {
    return Value::from(std::ranges::any_of(
        node.parameters, [](const ExpressionPtr& item) { return item->name == "caller"; }));
  }
  if (name == "catch_varargs") return Value::from(node.varargs_slot >= 0);
  return {};
}

}  // namespace automodel::chat
