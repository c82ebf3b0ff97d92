#include "recipes/plan/columns.h"

#include <algorithm>

#include "core/text.h"

namespace automodel::recipes {

std::string columns(const Rows& rows, Alignment alignment, size_t width) {
  std::vector<size_t> widths = {width};
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - row[i].size(), ' ');
      const bool is_last = i + 1 == row.size();
      const bool is_right = i > 0 && alignment == Alignment::kRight;
      line += cat("  ", is_right ? blanks : "", row[i], is_right || is_last ? "" : blanks);
    }
    text += cat(line, "\n");
  }
  return text;
}

std::string bytes_text(int64_t bytes) {
  return format_bytes(static_cast<uint64_t>(bytes));
}

}  // namespace automodel::recipes
