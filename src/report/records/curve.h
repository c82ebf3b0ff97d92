#pragma once

#include <cstdint>
#include <vector>

namespace automodel::report {

/// Values from `low` to `high`; empty when none was seen.
struct Range {
  double low = 0;
  double high = 0;
  bool is_empty = true;

  /// Takes in a value that is finite; others are passed over.
  void add(double value);
  double size() const { return high - low; }
};

/// Where some records of a curve lie, next to each other along x.
struct Column {
  double x = 0;    ///< of the middle of the column
  double low = 0;  ///< smallest and largest value
  double high = 0;
  double smooth = 0;  ///< the smoothed curve at the column's last record
};

/// A curve of any number of records as a picture shows it.
struct Curve {
  std::vector<Column> columns;       ///< those that hold a value, in order of x
  std::vector<double> non_finite_x;  ///< columns that hold NaN or an infinity
  double first = 0, last = 0;        ///< values, where there is a column
};

/// Sorts records into `num_columns` columns of equal width over `range`; nothing that is higher or
/// lower than its neighbours is lost. `x` and `y` have the same length. The smoothed curve is an
/// exponential mean over about `smoothing` records. Where a record has no x it is left out.
Curve make_curve(const std::vector<double>& x, const std::vector<double>& y, const Range& range,
                 int64_t num_columns, double smoothing);

/// The range of all finite values; with `is_log` of those above 0.
Range range_of(const std::vector<double>& values, bool is_log = false);

/// Round numbers for an axis over `range`, about `most` of them: 1, 2 or 5 times a power of ten.
std::vector<double> ticks_of(const Range& range, int most);

/// Powers of ten within `range`, which is above 0; ticks_of() when there are fewer than two.
std::vector<double> log_ticks_of(const Range& range, int most);

}  // namespace automodel::report
