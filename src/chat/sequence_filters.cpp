#include <algorithm>
#include <array>

#include "chat/characters.h"
#include "chat/filters.h"
#include "chat/iteration.h"
#include "chat/operators.h"
#include "chat/parameters.h"
#include "chat/text_methods.h"
#include "core/text.h"

namespace automodel::chat {

namespace {

Value iterator_value(Iterator* iterator) {
  Value out;
  out.kind = Kind::kIterator;
  out.iterator = iterator;
  return out;
}

Value lowered(Run& run, const Value& value) {
  return value.is_string() ? run.text(to_lower_case(value.text->bytes)) : value;
}

/// The parts of "address.city" or of a number.
Value attribute_parts(Run& run, const Value& attribute) {
  Value parts = run.new_list();
  if (attribute.is_missing() || attribute.is_none()) return parts;
  if (!attribute.is_string()) {
    parts.list->append(run.arena, attribute);
    return parts;
  }
  for (const std::string& part : split(attribute.text->bytes, '.')) {
    const bool is_number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    const auto number = is_number ? parse_int(part) : std::nullopt;
    parts.list->append(run.arena, number ? Value::from(*number) : run.text(part));
  }
  return parts;
}

/// jinja2's make_attrgetter.
Value follow(Run& run, Value item, const Value& parts, const Value& fallback = {}) {
  for (const Value& part : parts.list->span()) {
    item = get_item(run, item, part);
    if (item.is_undefined() && !fallback.is_missing() && !fallback.is_none()) item = fallback;
  }
  return item;
}

/// A copy of arguments that outlives the call.
Arguments kept(Run& run, std::span<const Value> positional, std::span<const NamedValue> named) {
  Value* values = run.arena.make_array<Value>(positional.size());
  std::copy(positional.begin(), positional.end(), values);
  auto* names = run.arena.make_array<NamedValue>(named.size());
  for (size_t i = 0; i < named.size(); ++i) {
    names[i] = {run.arena.copy(named[i].name), named[i].value};
  }
  return {{values, positional.size()}, {names, named.size()}};
}

/// The arguments of a call by name: the item, then those behind the name.
std::vector<Value> with_item(const Value& item, std::span<const Value> rest) {
  std::vector<Value> out = {item};
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

template <typename Callable>
const Callable* named_callable(Run& run, const Value& name, const char* what,
                               const Callable* (*find)(std::string_view)) {
  if (name.is_string()) {
    if (const Callable* found = find(name.text->bytes)) return found;
  }
  std::string text = cat("No ", what, " named ", repr(run, name), ".");
  if (name.is_undefined()) {
    text += cat(" (", undefined_message(run, *name.undefined),
                "; did you forget to quote the callable name?)");
  }
  throw Failure(text);
}

/// map(filter, ...) and map(attribute=...).
class Mapping final : public Iterator {
 public:
  Mapping(Run& run, const Arguments& arguments)
      : Iterator("generator"),
        source_(arguments.positional[0]),
        arguments_(kept(run, arguments.positional.subspan(1), arguments.named)) {}

  bool next(Run& run, Value& value) override {
    const Run::Depth depth(run);  // generators may lie over generators
    if (!is_started_) start(run);
    if (items_ == nullptr) return false;
    Value item;
    if (!items_->next(run, item)) return false;
    if (filter_ == nullptr) {
      value = follow(run, item, parts_, fallback_);
    } else {
      value =
          filter_->call(run, {with_item(item, arguments_.positional.subspan(1)), arguments_.named});
    }
    return true;
  }

 private:
  void start(Run& run) {
    is_started_ = true;
    if (!is_true(run, source_)) return;
    if (arguments_.positional.empty() && find_named("attribute") != nullptr) {
      parts_ = attribute_parts(run, *find_named("attribute"));
      if (const Value* fallback = find_named("default")) fallback_ = *fallback;
      for (const NamedValue& item : arguments_.named) {
        if (item.name == "attribute" || item.name == "default") continue;
        throw Failure(cat("Unexpected keyword argument '", item.name, "'"));
      }
    } else if (arguments_.positional.empty()) {
      throw Failure("map requires a filter argument");
    } else {
      filter_ = named_callable<Filter>(run, arguments_.positional[0], "filter", find_filter);
    }
    items_ = to_iterator(run, source_);
  }

  const Value* find_named(std::string_view name) const {
    for (const NamedValue& item : arguments_.named) {
      if (item.name == name) return &item.value;
    }
    return nullptr;
  }

  Value source_;
  Arguments arguments_;
  bool is_started_ = false;
  Iterator* items_ = nullptr;
  const Filter* filter_ = nullptr;
  Value parts_;
  Value fallback_;
};

/// select, reject, selectattr and rejectattr.
class Selection final : public Iterator {
 public:
  Selection(Run& run, const Arguments& arguments, bool is_wanted, bool by_attribute)
      : Iterator("generator"),
        source_(arguments.positional[0]),
        arguments_(kept(run, arguments.positional.subspan(1), arguments.named)),
        is_wanted_(is_wanted),
        by_attribute_(by_attribute) {}

  bool next(Run& run, Value& value) override {
    const Run::Depth depth(run);  // generators may lie over generators
    if (!is_started_) start(run);
    if (items_ == nullptr) return false;
    for (Value item; items_->next(run, item);) {
      if (passes(run, by_attribute_ ? follow(run, item, parts_) : item) != is_wanted_) continue;
      value = item;
      return true;
    }
    return false;
  }

 private:
  void start(Run& run) {
    is_started_ = true;
    if (!is_true(run, source_)) return;
    std::span<const Value> rest = arguments_.positional;
    if (by_attribute_) {
      if (rest.empty()) throw Failure("Missing parameter for attribute name");
      parts_ = attribute_parts(run, rest.front());
      rest = rest.subspan(1);
    }
    if (!rest.empty()) {
      test_name_ = rest.front();
      rest_ = rest.subspan(1);
    }
    items_ = to_iterator(run, source_);
  }

  bool passes(Run& run, const Value& value) {
    if (test_name_.is_missing()) return is_true(run, value);
    if (test_ == nullptr) test_ = named_callable<Test>(run, test_name_, "test", find_test);
    return is_true(run, test_->call(run, {with_item(value, rest_), arguments_.named}));
  }

  Value source_;
  Arguments arguments_;
  bool is_wanted_;
  bool by_attribute_;
  bool is_started_ = false;
  Iterator* items_ = nullptr;
  Value parts_;
  Value test_name_;
  std::span<const Value> rest_;
  const Test* test_ = nullptr;
};

Value map(Run& run, const Arguments& arguments) {
  return iterator_value(run.arena.make<Mapping>(run, arguments));
}

template <bool is_wanted, bool by_attribute>
Value select(Run& run, const Arguments& arguments) {
  return iterator_value(run.arena.make<Selection>(run, arguments, is_wanted, by_attribute));
}

Value first(Run& run, const Arguments& arguments) {
  const Parameters given("do_first", arguments, {"seq"}, 1);
  Items items(run, given[0]);
  Value item;
  if (items.next(item)) return item;
  return run.undefined_hint("No first item, sequence was empty.");
}

Value last(Run& run, const Arguments& arguments) {
  const Parameters given("do_last", arguments, {"seq"}, 1);
  const Value& value = given[0];
  if (!is_iterable(value) || value.is(Kind::kIterator) || value.is(Kind::kLoop)) {
    throw Failure(cat("'", type_name(value), "' object is not reversible"));
  }
  const Value items = to_list(run, value);
  if (items.list->size == 0) return run.undefined_hint("No last item, sequence was empty.");
  return like_markup(run, value, items.list->items[items.list->size - 1]);
}

Value reverse(Run& run, const Arguments& arguments) {
  const Parameters given("do_reverse", arguments, {"value"}, 1);
  if (given[0].is_string()) return slice(run, given[0], {}, {}, Value::from(int64_t{-1}));
  if (!is_iterable(given[0])) throw Failure("argument must be iterable");
  const Value items = to_list(run, given[0]);
  Value out = run.new_list(items.list->size);
  for (size_t i = items.list->size; i > 0; --i) {
    out.list->append(run.arena, items.list->items[i - 1]);
  }
  if (given[0].is(Kind::kIterator) || given[0].is(Kind::kLoop)) return out;
  return iterator_value(to_iterator(run, out));
}

class EntryIterator final : public Iterator {
 public:
  explicit EntryIterator(Items items) : Iterator("generator"), items_(items) {}
  bool next(Run&, Value& value) override { return items_.next(value); }

 private:
  Items items_;
};

Value items_of(Run& run, const Arguments& arguments) {
  const Parameters given("do_items", arguments, {"value"}, 1);
  Value view = run.new_list();
  if (!given[0].is_undefined()) {
    if (!given[0].is(Kind::kDict)) throw Failure("Can only get item pairs from a mapping.");
    view.kind = Kind::kDictView;
    view.view = run.arena.make<DictView>(given[0].dict, DictView::Part::kItems);
  }
  return iterator_value(run.arena.make<EntryIterator>(Items(run, view)));
}

/// Sorts stably; Python keeps equal items in order when it sorts downwards, too.
Value sorted(Run& run, const Value& items, const Value& keys, bool is_reversed) {
  std::vector<size_t> order(items.list->size);
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // A merge sort of our own: keys may be unordered, which std::stable_sort must not see.
  std::vector<size_t> other(order.size());
  const auto comes_before = [&](size_t a, size_t b) {
    return is_reversed ? is_less(run, keys.list->items[a], keys.list->items[b])
                       : is_less(run, keys.list->items[b], keys.list->items[a]);
  };
  for (size_t width = 1; width < order.size(); width *= 2) {
    for (size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, order.size());
      const size_t end = std::min(begin + 2 * width, order.size());
      size_t left = begin, right = middle;
      for (size_t at = begin; at < end; ++at) {
        // The right one goes first only when it is really less.
        const bool takes_right =
            left == middle || (right < end && comes_before(order[left], order[right]));
        other[at] = takes_right ? order[right++] : order[left++];
      }
    }
    order.swap(other);
  }
  Value out = run.new_list(order.size());
  for (const size_t index : order) out.list->append(run.arena, items.list->items[index]);
  return out;
}

Value sort(Run& run, const Arguments& arguments) {
  const Parameters given("do_sort", arguments, {"value", "reverse", "case_sensitive", "attribute"},
                         1);
  const bool keeps_case = given.is_true(run, 2, false);
  std::vector<Value> attributes;
  if (given.has(3) && given[3].is_string()) {
    for (const std::string& part : split(given[3].text->bytes, ',')) {
      attributes.push_back(attribute_parts(run, run.text(part)));
    }
  } else {
    attributes.push_back(attribute_parts(run, given[3]));
  }
  const Value items = to_list(run, given[0]);
  Value keys = run.new_list(items.list->size);
  for (const Value& item : items.list->span()) {
    Value key = run.new_list(attributes.size());
    for (const Value& parts : attributes) {
      const Value part = follow(run, item, parts);
      key.list->append(run.arena, keeps_case ? part : lowered(run, part));
    }
    keys.list->append(run.arena, key);
  }
  return sorted(run, items, keys, given.is_true(run, 1, false));
}

Value dict_sort(Run& run, const Arguments& arguments) {
  const Parameters given("do_dictsort", arguments, {"value", "case_sensitive", "by", "reverse"}, 1);
  const std::string by = given.text(run, 2, "key");
  if (by != "key" && by != "value") {
    throw Failure("You can only sort by either \"key\" or \"value\"");
  }
  if (given[0].is_undefined()) fail_undefined(run, given[0]);
  if (!given[0].is(Kind::kDict)) {
    throw Failure(cat("'", type_name(given[0]), "' object has no attribute 'items'"));
  }
  Value view;
  view.kind = Kind::kDictView;
  view.view = run.arena.make<DictView>(given[0].dict, DictView::Part::kItems);
  const Value items = to_list(run, view);
  Value keys = run.new_list(items.list->size);
  for (const Value& item : items.list->span()) {
    const Value& key = item.list->items[by == "key" ? 0 : 1];
    keys.list->append(run.arena, given.is_true(run, 1, false) ? key : lowered(run, key));
  }
  return sorted(run, items, keys, given.is_true(run, 3, false));
}

Value unique(Run& run, const Arguments& arguments) {
  const Parameters given("do_unique", arguments, {"value", "case_sensitive", "attribute"}, 1);
  const bool keeps_case = given.is_true(run, 1, false);
  const Value parts = attribute_parts(run, given[2]);
  Value out = run.new_list();
  Dict seen;
  Items items(run, given[0]);
  for (Value item; items.next(item);) {
    Value key = follow(run, item, parts);
    if (!keeps_case) key = lowered(run, key);
    if (seen.find(run, key) != nullptr) continue;
    seen.set(run, key, Value::none());
    out.list->append(run.arena, item);
  }
  return iterator_value(to_iterator(run, out));
}

template <bool wants_largest>
Value extreme(Run& run, const Arguments& arguments) {
  const Parameters given("do_min", arguments, {"value", "case_sensitive", "attribute"}, 1);
  const bool keeps_case = given.is_true(run, 1, false);
  const Value parts = attribute_parts(run, given[2]);
  Value best, best_key;
  Items items(run, given[0]);
  for (Value item; items.next(item);) {
    Value key = follow(run, item, parts);
    if (!keeps_case) key = lowered(run, key);
    const bool is_better = best.is_missing() || (wants_largest ? is_less(run, best_key, key, ">")
                                                               : is_less(run, key, best_key));
    if (!is_better) continue;
    best = item;
    best_key = key;
  }
  if (best.is_missing()) return run.undefined_hint("No aggregated item, sequence was empty.");
  return best;
}

Value sum(Run& run, const Arguments& arguments) {
  const Parameters given("do_sum", arguments, {"iterable", "attribute", "start"}, 1);
  const Value parts = attribute_parts(run, given[1]);
  Value total = given.has(2) ? given[2] : Value::from(int64_t{0});
  if (total.is_string()) {
    throw Failure("sum() can't sum strings [use ''.join(seq) instead]");
  }
  Items items(run, given[0]);
  for (Value item; items.next(item);) {
    total = binary_operation(run, Op::kAdd, total, follow(run, item, parts));
  }
  return total;
}

Value batch(Run& run, const Arguments& arguments) {
  const Parameters given("do_batch", arguments, {"value", "linecount", "fill_with"}, 2);
  const int64_t size = integer_argument(run, given[1]);
  const bool fills = given.has(2) && !given[2].is_none();
  Value out = run.new_list();
  Value line = run.new_list();
  Items items(run, given[0]);
  for (Value item; items.next(item);) {
    if (static_cast<int64_t>(line.list->size) == size) {
      out.list->append(run.arena, line);
      line = run.new_list();
    }
    line.list->append(run.arena, item);
  }
  if (line.list->size > 0) {
    while (fills && static_cast<int64_t>(line.list->size) < size) {
      run.step();
      line.list->append(run.arena, given[2]);
    }
    out.list->append(run.arena, line);
  }
  return iterator_value(to_iterator(run, out));
}

Value slices(Run& run, const Arguments& arguments) {
  const Parameters given("do_slice", arguments, {"value", "slices", "fill_with"}, 2);
  const int64_t count = integer_argument(run, given[1]);
  if (count == 0) throw Failure("integer division or modulo by zero");
  const Value items = to_list(run, given[0]);
  const auto length = static_cast<int64_t>(items.list->size);
  Value out = run.new_list();
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    run.step();
    const bool has_extra = i < length % count;
    const int64_t end = begin + length / count + (has_extra ? 1 : 0);
    Value part = slice(run, items, Value::from(begin), Value::from(end), {});
    if (given.has(2) && !given[2].is_none() && !has_extra) part.list->append(run.arena, given[2]);
    out.list->append(run.arena, part);
    begin = end;
  }
  return iterator_value(to_iterator(run, out));
}

Value group_by(Run& run, const Arguments& arguments) {
  const Parameters given("do_groupby", arguments,
                         {"value", "attribute", "default", "case_sensitive"}, 2);
  const bool keeps_case = given.is_true(run, 3, false);
  const Value parts = attribute_parts(run, given[1]);
  const auto key_of = [&](const Value& item) { return follow(run, item, parts, given[2]); };
  const auto sort_key = [&](const Value& item) {
    return keeps_case ? key_of(item) : lowered(run, key_of(item));
  };
  Value items = to_list(run, given[0]);
  Value keys = run.new_list(items.list->size);
  for (const Value& item : items.list->span()) keys.list->append(run.arena, sort_key(item));
  items = sorted(run, items, keys, false);
  Value out = run.new_list();
  Value last_key;
  List* group = nullptr;
  for (const Value& item : items.list->span()) {
    const Value key = sort_key(item);
    if (group == nullptr || !equals(run, key, last_key)) {
      Value members = run.new_list();
      group = members.list;
      Value pair = run.new_list(2, Kind::kTuple);
      pair.list->is_group = true;
      pair.list->append(run.arena, key_of(item));
      pair.list->append(run.arena, members);
      out.list->append(run.arena, pair);
      last_key = key;
    }
    group->append(run.arena, item);
  }
  return out;
}

constexpr std::array kFilters = {
    Filter{"map", map},
    Filter{"select", select<true, false>},
    Filter{"reject", select<false, false>},
    Filter{"selectattr", select<true, true>},
    Filter{"rejectattr", select<false, true>},
    Filter{"first", first},
    Filter{"last", last},
    Filter{"items", items_of},
    Filter{"reverse", reverse},
    Filter{"sort", sort},
    Filter{"dictsort", dict_sort},
    Filter{"unique", unique},
    Filter{"min", extreme<false>},
    Filter{"max", extreme<true>},
    Filter{"sum", sum},
    Filter{"batch", batch},
    Filter{"slice", slices},
    Filter{"groupby", group_by},
};

}  // namespace

const Filter* find_sequence_filter(std::string_view name) {
  for (const Filter& filter : kFilters) {
    if (name == filter.name) return &filter;
  }
  return nullptr;
}

}  // namespace automodel::chat
