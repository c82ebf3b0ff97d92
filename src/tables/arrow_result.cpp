#include "tables/arrow_result.h"

#include <arrow/status.h>

#include "core/error.h"
#include "core/text.h"

namespace automodel::tables {

void check(const arrow::Status& status, const std::string& path) {
  if (!status.ok()) throw InputError(cat(path, ": ", status.message()));
}

}  // namespace automodel::tables
