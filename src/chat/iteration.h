#pragma once

#include "chat/run.h"
#include "chat/value.h"

namespace automodel::chat {

/// Goes through a value's items without making an object of it.
class Items final {
 public:
  /// Throws Failure "'int' object is not iterable".
  Items(Run& run, const Value& value);
  /// Sets `item` to the next one; false at the end.
  bool next(Value& item);

 private:
  Run& run_;
  Value value_;
  size_t position_ = 0;  // items, or bytes of a text
};

/// Whether iter(value) works.
bool is_iterable(const Value& value);
/// list(value), as a list or a tuple.
Value to_list(Run& run, const Value& value, Kind kind = Kind::kList);
/// iter(value) as an object.
Iterator* to_iterator(Run& run, const Value& value);

/// jinja2's LoopContext: the variable `loop`.
struct Loop {
  Loop(Run& run, const Value& iterable_, int depth0_)
      : iterable(iterable_), iterator(to_iterator(run, iterable_)), depth0(depth0_) {}

  Value iterable;
  Iterator* iterator;
  int64_t depth0;
  int64_t index0 = -1;
  int64_t length = -1;  ///< -1: not known yet
  Value after;          ///< the next item, if it was looked at; missing otherwise
  Value current;
  Value before;
  Value last_changed;
  /// A recursive loop's body: renders it over other items.
  Value (*recurse)(Run& run, const Loop& loop, const Value& items) = nullptr;
  const void* recursive_node = nullptr;
  void* recursive_scope = nullptr;
};

/// Moves to the next item; false at the end.
bool loop_next(Run& run, Loop& loop, Value& item);
int64_t loop_length(Run& run, Loop& loop);
/// An attribute of `loop` (index, first, previtem, cycle ...); missing when it has none.
Value loop_attribute(Run& run, Loop& loop, std::string_view name);

}  // namespace automodel::chat
