#include "chat/globals.h"

#include <array>
#include <ctime>

#include "chat/iteration.h"
#include "chat/parameters.h"
#include "core/text.h"

namespace automodel::chat {

namespace {

Value make_range(Run& run, const Value&, const Arguments& arguments) {
  check_positional("range", arguments, 1, 3);
  int64_t parts[3] = {0, 0, 1};
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    parts[i] = integer_argument(run, arguments.positional[i]);
  }
  if (arguments.positional.size() == 1) {
    parts[1] = parts[0];
    parts[0] = 0;
  }
  const auto [start, stop, step] = parts;
  if (step == 0) throw Failure("range() arg 3 must not be zero");
  const auto distance = step > 0 ? static_cast<double>(stop) - static_cast<double>(start)
                                 : static_cast<double>(start) - static_cast<double>(stop);
  const double width = step > 0 ? static_cast<double>(step) : -static_cast<double>(step);
  constexpr double kMax = 100000;
  if (distance / width > kMax) {
    throw Failure("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  }
  int64_t size = 0;
  if (distance > 0) {
    const int64_t gap = step > 0 ? stop - start : start - stop;
    size = (gap - 1) / (step > 0 ? step : -step) + 1;
  }
  Value out;
  out.kind = Kind::kRange;
  out.range = run.arena.make<Range>(start, stop, step, size);
  return out;
}

/// What dict() and namespace() make of their arguments.
Dict* dict_of(Run& run, const char* name, const Arguments& arguments) {
  Dict* out = run.arena.make<Dict>();
  if (arguments.positional.size() > 1) {
    throw Failure(cat(name, " expected at most 1 argument, got ", arguments.positional.size()));
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is_undefined()) fail_undefined(run, source);
    if (source.is(Kind::kDict)) {
      for (size_t i = 0; i < source.dict->size; ++i) {
        run.step();
        out->set(run, source.dict->entries[i].key, source.dict->entries[i].value);
      }
    } else {
      Items items(run, source);
      for (Value item; items.next(item);) {
        const Value pair = to_list(run, item);
        if (pair.list->size != 2) {
          throw Failure("dictionary update sequence element has the wrong length; 2 is required");
        }
        hash_of(run, pair.list->items[0]);
        out->set(run, pair.list->items[0], pair.list->items[1]);
      }
    }
  }
  for (const NamedValue& item : arguments.named) out->set(run, run.text(item.name), item.value);
  return out;
}

Value make_dict(Run& run, const Value&, const Arguments& arguments) {
  return Value::from(Kind::kDict, dict_of(run, "dict", arguments));
}

Value make_namespace(Run& run, const Value&, const Arguments& arguments) {
  return Value::from(Kind::kNamespace, dict_of(run, "dict", arguments));
}

Value make_cycler(Run& run, const Value&, const Arguments& arguments) {
  if (arguments.positional.empty()) throw Failure("at least one item has to be provided");
  const size_t size = arguments.positional.size();
  Value* items = run.arena.make_array<Value>(size);
  std::copy(arguments.positional.begin(), arguments.positional.end(), items);
  Value out;
  out.kind = Kind::kCycler;
  out.cycler = run.arena.make<Cycler>(std::span<const Value>(items, size));
  return out;
}

Value make_joiner(Run& run, const Value&, const Arguments& arguments) {
  const Parameters given("Joiner", arguments, {"sep"}, 0);
  Value out;
  out.kind = Kind::kJoiner;
  out.joiner = run.arena.make<Joiner>(given.has(0) ? given[0] : run.text_view(", "));
  return out;
}

Value raise_exception(Run& run, const Value&, const Arguments& arguments) {
  const Parameters given("raise_exception", arguments, {"message"}, 1);
  throw Failure(to_text(run, given[0]));
}

Value strftime_now(Run& run, const Value&, const Arguments& arguments) {
  const Parameters given("strftime_now", arguments, {"format"}, 1);
  const std::string_view format = text_argument(run, "strftime()", given[0]);
  // A time without a zone, whose microseconds nobody knows.
  std::string known;
  for (size_t i = 0; i < format.size(); ++i) {
    const bool has_letter = format[i] == '%' && i + 1 < format.size();
    if (has_letter && format[i + 1] == 'f') {
      known += "000000";
    } else if (!has_letter || (format[i + 1] != 'z' && format[i + 1] != 'Z')) {
      known.push_back(format[i]);
      if (has_letter) known.push_back(format[i + 1]);
    }
    if (has_letter) ++i;
  }
  if (known.empty()) return run.text_view("");
  if (known.size() > 4096 || known.find('\0') != std::string::npos) {
    throw Failure("a date's format is too long or holds a zero");
  }
  const time_t now = run.now;
  tm parts{};
  gmtime_r(&now, &parts);
  std::string out(known.size() * 64 + 256, '\0');
  out.resize(std::strftime(out.data(), out.size(), known.c_str(), &parts));
  run.step(known.size() + out.size());  // far slower than copying
  return run.text(out);
}

Value refuse_lipsum(Run&, const Value&, const Arguments&) {
  throw Failure("lipsum() writes random text, which is not known here");
}

constexpr std::array kGlobals = {
    Builtin{"raise_exception", raise_exception},
    Builtin{"strftime_now", strftime_now},
    Builtin{"namespace", make_namespace},
    Builtin{"range", make_range},
    Builtin{"dict", make_dict},
    Builtin{"cycler", make_cycler},
    Builtin{"joiner", make_joiner},
    Builtin{"lipsum", refuse_lipsum},
};

}  // namespace

Value find_global(std::string_view name) {
  static const std::array<Function, kGlobals.size()> functions = [] {
    std::array<Function, kGlobals.size()> out{};
    for (size_t i = 0; i < kGlobals.size(); ++i) out[i].builtin = &kGlobals[i];
    return out;
  }();
  for (const Function& function : functions) {
    if (name != function.builtin->name) continue;
    Value out;
    out.kind = Kind::kFunction;
    out.function = &function;
    return out;
  }
  return {};
}

}  // namespace automodel::chat
