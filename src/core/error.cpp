#include "core/error.h"

namespace automodel {

void throw_internal_error(const char* file, int line, const char* condition,
                          const std::string& text) {
  throw InternalError(
      cat("internal error at ", file, ":", line, ": ", condition, text.empty() ? "" : ": ", text));
}

}  // namespace automodel
