#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace automodel::recipes {

/// Cells of a table, row by row.
using Rows = std::vector<std::vector<std::string>>;

/// How the columns behind the first, which is left-aligned, are written.
enum class Alignment { kLeft, kRight };

/// Lines of columns two blanks apart, indented; the first is at least `width` wide.
std::string columns(const Rows& rows, Alignment alignment, size_t width = 0);

/// A size as plans print it.
std::string bytes_text(int64_t bytes);

}  // namespace automodel::recipes
