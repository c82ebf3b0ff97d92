// rooms: datasets
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"
#include "datasets/rows/json_rows.h"
#include "datasets/rows/row_source.h"

namespace {

/// Reads every row and its place; bad input may only end in UserError.
void read_all(std::string_view text, const char* name) {
  try {
    const automodel::datasets::RowIndex rows(std::string(text), name);
    for (int64_t i = 0; i < rows.size(); ++i) {
      try {
        rows.row(i);
      } catch (const automodel::UserError&) {
        rows.origin(i);
      }
    }
  } catch (const automodel::UserError&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_all(text, "x.jsonl");
  read_all(text, "x.json");
  try {
    automodel::datasets::Split::parse(text).range(1000);
  } catch (const automodel::UserError&) {
    return 0;
  }
  return 0;
}
