#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/curve.h"

namespace automodel::report {

/// One run's curve in a chart.
struct ChartCurve {
  std::string name;  ///< of the run, as it was given
  size_t color = 0;  ///< number of the run; chooses a colour and a dash
  Curve curve;
  std::vector<std::pair<double, double>> dots;  ///< single points: validation losses
  std::vector<double> marks;                    ///< x of resumes, as vertical lines
  std::vector<double> failures;                 ///< x of failures, likewise
};

struct ChartOptions {
  std::string title;      ///< "loss"
  std::string x_title;    ///< "step"
  bool is_log = false;    ///< the y axis; values that are not above 0 are not drawn
  bool has_time = false;  ///< x is a duration in seconds
  Range x, y;             ///< y: of what is drawn, above 0 where it is logarithmic
};

/// A chart as an SVG element whose colours are CSS classes: `c0`, `c1`, ... of the runs. Each run
/// is a band from the lowest to the highest value of each column, class `raw`, and a smoothed line,
/// class `smooth`.
std::string chart_svg(const std::vector<ChartCurve>& curves, const ChartOptions& options);

}  // namespace automodel::report
