#pragma once

#include <string_view>

#include "chat/run.h"
#include "chat/value.h"

namespace automodel::chat {

/// A filter: the first positional argument is what it is applied to.
struct Filter {
  std::string_view name;
  Value (*call)(Run& run, const Arguments& arguments);
};

/// A test, used with `is`; the same.
struct Test {
  std::string_view name;
  Value (*call)(Run& run, const Arguments& arguments);
};

/// nullptr when there is none of that name.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);

/// The filters that make and choose items (map, select, sort ...).
const Filter* find_sequence_filter(std::string_view name);

}  // namespace automodel::chat
