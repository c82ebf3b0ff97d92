#pragma once

#include <string>
#include <utility>

namespace arrow {
class Status;
}

namespace automodel::tables {

/// Throws InputError with the file's name for what went wrong.
void check(const arrow::Status& status, const std::string& path);

/// The value of an arrow::Result, or an InputError as check() throws it.
template <typename Result>
auto take(Result result, const std::string& path) {
  check(result.status(), path);
  return std::move(result).ValueUnsafe();
}

}  // namespace automodel::tables
