#include "report/records/curve.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace automodel::report {

namespace {

/// The mean of all records so far, in which a record's weight halves about every `span` records.
class SmoothMean final {
 public:
  explicit SmoothMean(double span) : keep_(1.0 - 1.0 / std::max(span, 1.0)) {}

  double add(double value) {
    sum_ = keep_ * sum_ + value;
    weight_ = keep_ * weight_ + 1;  // so that the first records count whole
    return sum_ / weight_;
  }

 private:
  double keep_;
  double sum_ = 0;
  double weight_ = 0;
};

/// One column while records fall into it.
struct Cell {
  Range values;
  double smooth = 0;
  bool has_non_finite = false;
};

/// Whether a value is finite and small enough for the difference of two to be so.
bool is_drawn(double value) {
  constexpr double kMost = 1e300;
  return std::abs(value) <= kMost;
}

}  // namespace

void Range::add(double value) {
  if (!is_drawn(value)) return;
  low = is_empty ? value : std::min(low, value);
  high = is_empty ? value : std::max(high, value);
  is_empty = false;
}

Curve make_curve(const std::vector<double>& x, const std::vector<double>& y, const Range& range,
                 int64_t num_columns, double smoothing) {
  std::vector<Cell> cells(static_cast<size_t>(num_columns));
  const double width = range.size() > 0 ? range.size() / static_cast<double>(num_columns) : 1;
  SmoothMean mean(smoothing);
  Curve curve;
  bool has_value = false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i])) continue;
    const double at = std::floor((x[i] - range.low) / width);
    Cell& cell =
        cells[static_cast<size_t>(std::clamp(at, 0.0, static_cast<double>(num_columns - 1)))];
    if (is_drawn(y[i])) {
      if (!std::exchange(has_value, true)) curve.first = y[i];
      curve.last = y[i];
      cell.values.add(y[i]);
      cell.smooth = mean.add(y[i]);
    } else {
      cell.has_non_finite = true;
    }
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    const double middle = range.low + (static_cast<double>(i) + 0.5) * width;
    const double shown = range.size() > 0 ? middle : range.low;
    if (!cell.values.is_empty) {
      curve.columns.push_back({shown, cell.values.low, cell.values.high, cell.smooth});
    }
    if (cell.has_non_finite) curve.non_finite_x.push_back(shown);
  }
  return curve;
}

Range range_of(const std::vector<double>& values, bool is_log) {
  Range range;
  for (const double value : values) {
    if (!is_log || value > 0) range.add(value);
  }
  return range;
}

std::vector<double> ticks_of(const Range& range, int most) {
  if (range.is_empty) return {};
  if (range.size() <= 0) return {range.low};
  const double rough = range.size() / most;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  std::vector<double> ticks;
  const double first = std::ceil(range.low / step - 1e-9), last = range.high / step + 1e-9;
  for (double at = first; at <= last; ++at) ticks.push_back(at * step + 0.0);  // + 0.0: no -0
  return ticks;
}

std::vector<double> log_ticks_of(const Range& range, int most) {
  if (range.is_empty || range.low <= 0) return {};
  const int first = static_cast<int>(std::ceil(std::log10(range.low) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log10(range.high) + 1e-9));
  if (last - first < 1) return ticks_of(range, most);
  const int stride = (last - first) / most + 1;
  std::vector<double> ticks;
  for (int at = first; at <= last; at += stride) ticks.push_back(std::pow(10.0, at));
  return ticks;
}

}  // namespace automodel::report
