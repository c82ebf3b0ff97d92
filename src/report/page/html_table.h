#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/records/run_files.h"

namespace automodel::report {

/// A table that scrolls by itself where it is wider than the page: a head of these cells, and rows
/// that are HTML already. `css` is the table's class.
std::string wide_table(const std::vector<std::string>& head, std::string_view rows,
                       std::string_view css = "");

/// A table of number_row()s.
std::string number_table(const std::vector<std::string>& head, std::string_view rows);

/// A row of a table, of texts: its first cell is its head.
std::string row(const std::string& key, const std::vector<std::string>& values);

/// A row of numbers, which are set to the right, behind its first cell.
std::string number_row(const std::string& key, const std::vector<std::string>& values);

/// A first cell's text, and the names of runs.
std::vector<std::string> with_names(std::string first, const RunViews& runs);

/// "c3", or "c3 dashed": the classes of the run of this number.
std::string color_of(size_t run);

/// "12.5%"; "" for NaN.
std::string percent_text(double share);

/// A part of a bar, by its class of colour.
struct BarPart {
  std::string color;
  double share = 0;  ///< of the bar
};

/// A bar of parts beside each other. It is hidden from screen readers: numbers say the same.
std::string share_bar(const std::vector<BarPart>& parts);

}  // namespace automodel::report
