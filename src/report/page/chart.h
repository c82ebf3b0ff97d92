#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/records/curve.h"

namespace automodel::report {

/// Shapes of points, which stand for different things of one run.
inline constexpr size_t kNumDotShapes = 4;

/// Single points of one run: the losses of a validation set.
struct ChartDots {
  size_t shape = 0;  ///< a disc, a square, a diamond, a triangle
  std::vector<std::pair<double, double>> places;
};

/// An event on the time line.
struct ChartMark {
  double x = 0;
  size_t kind = 0;   ///< of kMarkKinds
  std::string text;  ///< what a pointer that rests on it shows, and a screen reader says
};

/// One run's curve in a chart.
struct ChartCurve {
  std::string name;  ///< of the run, as it was given
  size_t color = 0;  ///< number of the run; chooses a colour and a dash
  Curve curve;
  std::vector<ChartDots> dots;
  std::vector<ChartMark> marks;
};

struct ChartOptions {
  std::string title;      ///< "loss"
  std::string x_title;    ///< "step"
  bool is_log = false;    ///< the y axis; values that are not above 0 are not drawn
  bool has_time = false;  ///< x is a duration in seconds
  bool has_marks = false;
  Range x, y;  ///< y: of what is drawn, above 0 where it is logarithmic
};

/// A chart as an SVG element whose colours are CSS classes: `c0`, `c1`, ... of the runs. Each run
/// is a band from the lowest to the highest value of each column, class `raw`, and a smoothed line,
/// class `smooth`.
std::string chart_svg(const std::vector<ChartCurve>& curves, const ChartOptions& options);

/// The shape of points as an SVG path of class `dots`, at these places of a picture.
std::string dots_path(size_t shape, const std::vector<std::pair<int, int>>& places);

/// A mark's glyph as an SVG path at a place of a picture; "" for a kind without one.
std::string mark_glyph(size_t kind, int x, int y);

}  // namespace automodel::report
