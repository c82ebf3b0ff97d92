#include "core/error.h"

namespace automodel {

void throw_internal_error(const char* file, int line, const char* condition,
                          const std::string& text) {
  throw InternalError(
      cat("internal error at ", file, ":", line, ": ", condition, text.empty() ? "" : ": ", text));
}

std::string internal_error_text(const std::exception& error) {
  std::string text = error.what();
  text = trim(text.substr(0, text.find("\nException raised from")));  // LibTorch adds its stack
  return text.starts_with("internal error") ? text : cat("internal error: ", text);
}

}  // namespace automodel
