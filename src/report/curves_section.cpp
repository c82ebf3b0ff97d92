#include "report/curves_section.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "report/chart.h"
#include "report/html.h"

namespace automodel::report {

namespace {

/// What curves are drawn against.
enum class Axis { kStep, kTokens, kTime };

struct AxisNames {
  Axis axis;
  const char* css;
  const char* title;
};

constexpr AxisNames kAxes[] = {{Axis::kStep, "by-step", "step"},
                               {Axis::kTokens, "by-tokens", "tokens"},
                               {Axis::kTime, "by-time", "time since the first step"}};

/// Columns of a curve, so that the pictures of many runs stay small.
int64_t num_columns(size_t num_runs) {
  constexpr int64_t kMost = 600, kLeast = 60, kOfAllRuns = 4800;
  return std::clamp(kOfAllRuns / static_cast<int64_t>(num_runs), kLeast, kMost);
}

/// Seconds since the first record. A clock that was set back stands still until it has caught up.
std::vector<double> elapsed(const std::vector<double>& seconds) {
  std::vector<double> out;
  out.reserve(seconds.size());
  double first = std::nan(""), last = 0;
  for (const double now : seconds) {
    if (std::isfinite(now) && std::isnan(first)) first = now;
    if (std::isfinite(now)) last = std::max(last, now - first);
    out.push_back(last);
  }
  return out;
}

std::vector<double> places(const RecordedRun& run, Axis axis) {
  if (axis == Axis::kStep) return run.steps.step;
  if (axis == Axis::kTokens) return run.steps.tokens;
  return elapsed(run.steps.seconds);
}

/// Where a step lies on an axis: at the first record that is not before it.
double place_of(const RecordedRun& run, const std::vector<double>& x, double step) {
  const auto& steps = run.steps.step;
  const auto found = std::lower_bound(steps.begin(), steps.end(), step);
  if (found == steps.end()) return x.empty() ? std::nan("") : x.back();
  return x[static_cast<size_t>(found - steps.begin())];
}

/// The x values of all runs, on one axis.
struct AxisValues {
  std::vector<std::vector<double>> of_runs;
  Range range;
};

AxisValues values_on(const std::vector<RecordedRun>& runs, Axis axis) {
  AxisValues values;
  for (const RecordedRun& run : runs) {
    values.of_runs.push_back(places(run, axis));
    for (const double x : values.of_runs.back()) values.range.add(x);
  }
  return values;
}

/// Where a run was at a time: at its last record before it.
double place_at(const RecordedRun& run, const std::vector<double>& x, double seconds) {
  const auto& times = run.steps.seconds;
  const auto found = std::upper_bound(times.begin(), times.end(), seconds);
  if (found == times.begin() || !std::isfinite(seconds)) return std::nan("");
  return x[static_cast<size_t>(found - times.begin()) - 1];
}

void add_points(const RecordedRun& run, Metric metric, const std::vector<double>& x,
                ChartCurve& curve) {
  for (const RunEvent& event : run.events) {
    const bool is_failure = event.name == "failure";
    const bool is_resume = event.name == "resume" && event.step.has_value();
    if (!is_failure && !is_resume) continue;
    const double place = is_failure ? place_at(run, x, event.seconds)
                                    : place_of(run, x, static_cast<double>(*event.step));
    if (std::isfinite(place)) (is_failure ? curve.failures : curve.marks).push_back(place);
  }
  if (metric != Metric::kLoss) return;
  constexpr size_t kMostDots = 200;
  const size_t stride = run.validations.size() / kMostDots + 1;
  for (size_t i = 0; i < run.validations.size(); i += stride) {
    const ValidationPoint& point = run.validations[i];
    const double place = place_of(run, x, point.step);
    if (std::isfinite(place)) curve.dots.emplace_back(place, point.loss);
  }
}

Range y_range(const std::vector<ChartCurve>& curves, bool is_log) {
  Range range;
  const auto add = [&](double value) {
    if (!is_log || value > 0) range.add(value);
  };
  for (const ChartCurve& curve : curves) {
    for (const Column& column : curve.curve.columns) {
      add(column.low);
      add(column.high);
    }
    for (const auto& dot : curve.dots) add(dot.second);
  }
  return range;
}

std::string charts_on(const std::vector<RecordedRun>& runs, Metric metric, const AxisNames& names,
                      const AxisValues& x) {
  constexpr double kSmoothingShare = 0.02;  // of a run's records
  // A schedule and a peak are not noisy.
  const bool is_noisy = metric != Metric::kLr && metric != Metric::kMemory;
  std::vector<ChartCurve> curves;
  for (size_t i = 0; i < runs.size(); ++i) {
    const double share = is_noisy ? kSmoothingShare : 0;
    const double smoothing = std::max(1.0, share * static_cast<double>(runs[i].steps.size()));
    ChartCurve curve{runs[i].name, i, {}, {}, {}, {}};
    curve.curve = make_curve(x.of_runs[i], runs[i].steps.of(metric), x.range,
                             num_columns(runs.size()), smoothing);
    add_points(runs[i], metric, x.of_runs[i], curve);
    curves.push_back(std::move(curve));
  }
  std::string out;
  for (const bool is_log : {false, true}) {
    const Range y = y_range(curves, is_log);
    const std::string begin = cat("<div class=\"", names.css, is_log ? " log" : " linear", "\">");
    if (y.is_empty) {
      out += cat(begin, "<p>no value above 0</p></div>");
      continue;
    }
    out += begin;
    out += chart_svg(curves, {std::string(metric_title(metric)), names.title, is_log,
                              names.axis == Axis::kTime, x.range, y});
    out += "</div>";
  }
  return out;
}

bool has_values(const std::vector<RecordedRun>& runs, Metric metric) {
  return std::ranges::any_of(
      runs, [&](const RecordedRun& run) { return !range_of(run.steps.of(metric)).is_empty; });
}

}  // namespace

std::string curves_section(const std::vector<RecordedRun>& runs) {
  std::vector<AxisValues> values;
  for (const AxisNames& names : kAxes) values.push_back(values_on(runs, names.axis));
  std::string out;
  for (const Metric metric : kMetrics) {
    if (!has_values(runs, metric)) continue;
    out += cat("<figure><figcaption>", escaped(metric_title(metric)), "</figcaption>");
    for (size_t i = 0; i < std::size(kAxes); ++i) {
      out += charts_on(runs, metric, kAxes[i], values[i]);
    }
    out += "</figure>\n";
  }
  return out.empty() ? "<p>No step has been recorded yet.</p>\n" : out;
}

}  // namespace automodel::report
