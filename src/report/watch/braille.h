#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/records/curve.h"

namespace automodel::report {

/// One run's curve in a chart of braille dots.
struct DotCurve {
  const Curve* curve = nullptr;
  size_t color = 0;  ///< number of the run
};

/// A chart's place in a terminal.
struct DotChart {
  int width = 0;   ///< characters, each two dots wide
  int height = 0;  ///< lines, each four dots high
  Range x, y;
  bool has_color = false;
};

/// Lines of braille characters, `height` of them and each `width` wide. A column's dots reach from
/// its lowest to its highest value, and to its neighbour's. Where curves of several runs meet in a
/// character, the last one gives its colour.
std::vector<std::string> draw_dots(const std::vector<DotCurve>& curves, const DotChart& chart);

/// The text in a run's colour, by an escape sequence.
std::string in_color(const std::string& text, size_t color);

}  // namespace automodel::report
