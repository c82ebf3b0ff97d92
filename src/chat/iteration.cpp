#include "chat/iteration.h"

#include "chat/characters.h"
#include "core/text.h"

namespace automodel::chat {

bool is_iterable(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

Items::Items(Run& run, const Value& value) : run_(run), value_(value) {
  if (!is_iterable(value)) {
    throw Failure(cat("'", type_name(value), "' object is not iterable"));
  }
}

bool Items::next(Value& item) {
  run_.step();
  switch (value_.kind) {
    case Kind::kString: {
      const std::string_view bytes = value_.text->bytes;
      if (position_ >= bytes.size()) return false;
      const size_t begin = position_;
      next_code_point(bytes, position_);
      item = run_.text_view(bytes.substr(begin, position_ - begin));
      return true;
    }
    case Kind::kList:
    case Kind::kTuple:
      if (position_ >= value_.list->size) return false;
      item = value_.list->items[position_++];
      return true;
    case Kind::kDict:
      if (position_ >= value_.dict->size) return false;
      item = value_.dict->entries[position_++].key;
      return true;
    case Kind::kDictView: {
      const DictView& view = *value_.view;
      if (position_ >= view.dict->size) return false;
      const Dict::Entry& entry = view.dict->entries[position_++];
      if (view.part == DictView::Part::kItems) {
        item = run_.new_list(2, Kind::kTuple);
        item.list->append(run_.arena, entry.key);
        item.list->append(run_.arena, entry.value);
      } else {
        item = view.part == DictView::Part::kKeys ? entry.key : entry.value;
      }
      return true;
    }
    case Kind::kRange: {
      if (position_ >= static_cast<size_t>(value_.range->size)) return false;
      const auto number = static_cast<int64_t>(position_++);
      item = Value::from(value_.range->start + number * value_.range->step);
      return true;
    }
    case Kind::kIterator:
      return value_.iterator->next(run_, item);
    case Kind::kLoop:
      if (!loop_next(run_, *value_.loop, item)) return false;
      {
        Value pair = run_.new_list(2, Kind::kTuple);
        pair.list->append(run_.arena, item);
        pair.list->append(run_.arena, value_);
        item = pair;
      }
      return true;
    default:
      return false;
  }
}

Value to_list(Run& run, const Value& value, Kind kind) {
  if (value.kind == Kind::kTuple && kind == Kind::kTuple) return value;
  const bool has_size = value.is_sequence();
  Value out = run.new_list(has_size ? value.list->size : 0, kind);
  Items items(run, value);
  for (Value item; items.next(item);) out.list->append(run.arena, item);
  return out;
}

namespace {

class ItemsIterator final : public Iterator {
 public:
  ItemsIterator(Run& run, const Value& value) : Iterator("list_iterator"), items_(run, value) {}
  bool next(Run&, Value& value) override { return items_.next(value); }

 private:
  Items items_;
};

Value loop_cycle(Run&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) throw Failure("no items for cycling given");
  const auto size = static_cast<int64_t>(arguments.positional.size());
  return arguments.positional[static_cast<size_t>(self.loop->index0 % size)];
}

Value loop_changed(Run& run, const Value& self, const Arguments& arguments) {
  Value now = run.new_list(arguments.positional.size(), Kind::kTuple);
  for (const Value& value : arguments.positional) now.list->append(run.arena, value);
  Loop& loop = *self.loop;
  if (!loop.last_changed.is_missing() && equals(run, loop.last_changed, now)) {
    return Value::from(false);
  }
  loop.last_changed = now;
  return Value::from(true);
}

constexpr Builtin kCycle = {"cycle", loop_cycle};
constexpr Builtin kChanged = {"changed", loop_changed};

Value bound(Run& run, const Builtin& builtin, Loop& loop) {
  Value self;
  self.kind = Kind::kLoop;
  self.loop = &loop;
  Value out;
  out.kind = Kind::kFunction;
  out.function = run.arena.make<Function>(&builtin, self);
  return out;
}

bool has_next(Run& run, Loop& loop) {
  if (!loop.after.is_missing()) return true;
  Value item;
  if (!loop.iterator->next(run, item)) return false;
  loop.after = item;
  return true;
}

}  // namespace

Iterator* to_iterator(Run& run, const Value& value) {
  if (value.is(Kind::kIterator)) return value.iterator;
  return run.arena.make<ItemsIterator>(run, value);
}

bool loop_next(Run& run, Loop& loop, Value& item) {
  if (!loop.after.is_missing()) {
    item = loop.after;
    loop.after = Value();
  } else if (!loop.iterator->next(run, item)) {
    return false;
  }
  ++loop.index0;
  loop.before = loop.current;
  loop.current = item;
  return true;
}

int64_t loop_length(Run& run, Loop& loop) {
  if (loop.length >= 0) return loop.length;
  if (loop.iterable.is(Kind::kLoop)) {
    loop.length = loop_length(run, *loop.iterable.loop);
  } else if (!loop.iterable.is(Kind::kIterator)) {
    loop.length = length_of(loop.iterable);
  } else {
    Value rest = run.new_list();
    for (Value item; loop.iterator->next(run, item);) rest.list->append(run.arena, item);
    loop.iterator = to_iterator(run, rest);
    loop.length =
        static_cast<int64_t>(rest.list->size) + loop.index0 + 1 + (loop.after.is_missing() ? 0 : 1);
  }
  return loop.length;
}

Value loop_attribute(Run& run, Loop& loop, std::string_view name) {
  if (name == "index") return Value::from(loop.index0 + 1);
  if (name == "index0") return Value::from(loop.index0);
  if (name == "first") return Value::from(loop.index0 == 0);
  if (name == "last") return Value::from(!has_next(run, loop));
  if (name == "length") return Value::from(loop_length(run, loop));
  if (name == "revindex") return Value::from(loop_length(run, loop) - loop.index0);
  if (name == "revindex0") return Value::from(loop_length(run, loop) - loop.index0 - 1);
  if (name == "depth") return Value::from(loop.depth0 + 1);
  if (name == "depth0") return Value::from(loop.depth0);
  if (name == "previtem") {
    return loop.index0 == 0 ? run.undefined_hint("there is no previous item") : loop.before;
  }
  if (name == "nextitem") {
    return has_next(run, loop) ? loop.after : run.undefined_hint("there is no next item");
  }
  if (name == "cycle") return bound(run, kCycle, loop);
  if (name == "changed") return bound(run, kChanged, loop);
  return {};
}

}  // namespace automodel::chat
