#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace automodel::recipes {

/// The cells of a table, row by row.
using Rows = std::vector<std::vector<std::string>>;

/// How the columns after the first are aligned; the first is left-aligned.
enum class Alignment { kLeft, kRight };

/// The rows as indented lines, columns separated by two blanks; the first column is at least
/// `width` wide.
std::string columns(const Rows& rows, Alignment alignment, size_t width = 0);

/// A number of bytes as plans print it.
std::string bytes_text(int64_t bytes);

}  // namespace automodel::recipes
