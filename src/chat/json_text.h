#pragma once

#include <optional>
#include <string>

#include "chat/run.h"

namespace automodel::chat {

/// Options of Python's json.dumps.
struct JsonFormat {
  bool is_ascii = false;
  bool sorts_keys = false;
  std::optional<std::string> indent;  ///< one level's; none for one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

/// json.dumps(value); throws Failure for what is not JSON.
std::string to_json(Run& run, const Value& value, const JsonFormat& format);

}  // namespace automodel::chat
