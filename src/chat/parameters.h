#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "chat/run.h"
#include "chat/value.h"

namespace automodel::chat {

/// A function's arguments by its parameters' names: those that were not given are missing.
class Parameters final {
 public:
  /// The first `num_required` must be given. Throws Failure as Python does.
  Parameters(const char* function, const Arguments& arguments,
             std::initializer_list<std::string_view> names, size_t num_required);

  const Value& operator[](size_t index) const { return values_[index]; }
  bool has(size_t index) const { return !values_[index].is_missing(); }
  bool is_true(Run& run, size_t index, bool fallback) const {
    return has(index) ? chat::is_true(run, values_[index]) : fallback;
  }
  /// Throws Failure for what is no int.
  int64_t integer(Run& run, size_t index, int64_t fallback) const;
  /// str(value), or the fallback.
  std::string text(Run& run, size_t index, std::string_view fallback) const;

 private:
  static constexpr size_t kMax = 6;
  Value values_[kMax];
};

/// The arguments of a method that takes them by position only.
void check_positional(const char* function, const Arguments& arguments, size_t least, size_t most);
/// The bytes of a str argument; throws Failure "... must be str, not int".
std::string_view text_argument(Run& run, const char* function, const Value& value);
/// The value of an int argument; throws Failure.
int64_t integer_argument(Run& run, const Value& value);
/// str(value) as a string.
std::string to_text(Run& run, const Value& value);

}  // namespace automodel::chat
