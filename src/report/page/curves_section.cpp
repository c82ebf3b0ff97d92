#include "report/page/curves_section.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/html_text.h"
#include "core/text.h"
#include "report/facts/html.h"
#include "report/facts/marks.h"
#include "report/page/chart.h"
#include "report/page/html_table.h"

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

constexpr size_t kFewRuns = 4;
constexpr size_t kMostExtraCharts = kMostExtras, kMostExtraChartsOfMany = 4;

/// Numbers that are drawn: of a metric, or of a further key of the records.
struct Series {
  std::string title;
  bool is_loss = false;   ///< has validations, and marks with all that is known of them
  bool is_noisy = true;   ///< has a smoothed line
  bool is_extra = false;  ///< records may lack it
  std::vector<const std::vector<double>*> of_runs;  ///< null where a run has none
  /// Points of validations; null where a run has none.
  std::vector<const std::vector<ValidationPoint>*> points;
};

/// Columns of a curve, so that the pictures of many runs and metrics stay small.
int64_t num_columns(size_t num_runs, size_t num_charts) {
  constexpr int64_t kMost = 600, kLeast = 48, kOfAll = 28000;
  return std::clamp(kOfAll / static_cast<int64_t>(num_runs * num_charts), kLeast, kMost);
}

/// Points and marks of a run, likewise.
size_t share_of(size_t all, size_t least, size_t num_runs) {
  return std::max(least, all / num_runs);
}

/// Seconds since the first record. A clock that was set back goes on from where it was.
std::vector<double> elapsed(const std::vector<double>& seconds) {
  std::vector<double> out;
  out.reserve(seconds.size());
  double before = std::nan(""), sum = 0;
  for (const double now : seconds) {
    if (std::isfinite(now)) {
      if (now > before) sum += now - before;
      before = now;
    }
    out.push_back(sum);
  }
  return out;
}

std::vector<double> places(const RecordedRun& run, Axis axis) {
  if (axis == Axis::kStep) return run.steps.step;
  if (axis == Axis::kTokens) return run.steps.tokens;
  return elapsed(run.steps.seconds);
}

/// The first row whose step is not before this one, or the last; there is one.
size_t row_of(const RecordedRun& run, double step) {
  const auto& steps = run.steps.step;
  const auto found = std::lower_bound(steps.begin(), steps.end() - 1, step);
  return static_cast<size_t>(found - steps.begin());
}

/// The x values of all runs, on one axis.
struct AxisValues {
  std::vector<std::vector<double>> of_runs;
  Range range;
};

AxisValues values_on(const RunViews& runs, Axis axis) {
  AxisValues values;
  for (const RecordedRun& run : runs) {
    values.of_runs.push_back(places(run, axis));
    for (const double x : values.of_runs.back()) values.range.add(x);
  }
  return values;
}

/// The names of validation sets, which give the shape of their points.
std::vector<std::string> set_names(const RunViews& runs) {
  std::set<std::string> names;
  for (const RecordedRun& run : runs) {
    for (const ValidationPoint& point : run.validations.losses) names.insert(point.set);
  }
  return {names.begin(), names.end()};
}

/// The points of one set, of a long run some of them.
ChartDots dots_of(const RecordedRun& run, const std::vector<ValidationPoint>& points,
                  const std::string& set, const std::vector<double>& x, size_t most) {
  ChartDots dots;
  const size_t count = static_cast<size_t>(std::ranges::count(points, set, &ValidationPoint::set));
  const size_t stride = count / most + 1;
  size_t number = 0;
  for (const ValidationPoint& point : points) {
    if (point.set != set || number++ % stride != 0) continue;
    const double place = x[row_of(run, point.step)];
    if (std::isfinite(place)) dots.places.emplace_back(place, point.value);
  }
  return dots;
}

/// What stays the same on all axes.
struct Parts {
  std::vector<std::string> sets;
  std::vector<std::vector<EventMark>> marks;  // of each run
};

void add_points(const RecordedRun& run, const std::vector<ValidationPoint>* points,
                const Parts& parts, size_t num_runs, const std::vector<double>& x,
                ChartCurve& curve) {
  constexpr size_t kMostDots = 100, kLeastDots = 20;
  if (points == nullptr || x.empty()) return;
  for (size_t i = 0; i < parts.sets.size(); ++i) {
    const size_t most = share_of(kMostDots, kLeastDots, num_runs * parts.sets.size());
    curve.dots.push_back(dots_of(run, *points, parts.sets[i], x, most));
    curve.dots.back().shape = i;
  }
}

void add_marks(const std::vector<EventMark>& marks, bool has_text, const std::vector<double>& x,
               ChartCurve& curve) {
  for (const EventMark& mark : marks) {
    if (!std::isfinite(x[mark.row])) continue;
    curve.marks.push_back({x[mark.row], mark.kind, has_text ? mark.text : mark.short_text});
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
    for (const ChartDots& dots : curve.dots) {
      for (const auto& place : dots.places) add(place.second);
    }
  }
  return range;
}

ChartCurve curve_of(const RecordedRun& run, size_t number, const Series& series,
                    const AxisValues& x, int64_t columns) {
  constexpr double kSmoothingShare = 0.02;  // of a run's records
  ChartCurve curve{run.name, number, {}, {}, {}};
  const std::vector<double>* values = series.of_runs[number];
  if (values == nullptr) return curve;
  const double share = series.is_noisy ? kSmoothingShare : 0;
  const double smoothing = std::max(1.0, share * static_cast<double>(run.steps.size()));
  curve.curve = make_curve(x.of_runs[number], *values, x.range, columns, smoothing);
  if (series.is_extra) curve.curve.non_finite_x.clear();
  return curve;
}

std::string charts_on(const RunViews& runs, const Series& series, const Parts& parts,
                      const AxisNames& names, const AxisValues& x, int64_t columns) {
  std::vector<ChartCurve> curves;
  for (size_t i = 0; i < runs.size(); ++i) {
    curves.push_back(curve_of(runs[i], i, series, x, columns));
    add_points(runs[i], series.points[i], parts, runs.size(), x.of_runs[i], curves.back());
    add_marks(parts.marks[i], series.is_loss, x.of_runs[i], curves.back());
  }
  const bool has_marks =
      std::ranges::any_of(curves, [](const ChartCurve& curve) { return !curve.marks.empty(); });
  std::string out;
  for (const bool is_log : {false, true}) {
    const Range y = y_range(curves, is_log);
    const std::string begin = cat("<div class=\"", names.css, is_log ? " log" : " linear", "\">");
    if (y.is_empty) {
      out += cat(begin, "<p>no value above 0</p></div>");
      continue;
    }
    out += begin;
    out += chart_svg(curves, {series.title, names.title, is_log, names.axis == Axis::kTime,
                              has_marks, x.range, y});
    out += "</div>";
  }
  return out;
}

/// Whether some run has a value to draw.
bool has_values(const Series& series, const RunViews& runs) {
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::vector<double>* values = series.of_runs[i];
    if (values != nullptr && !range_of(*values).is_empty) return true;
    // Points lie where their steps do.
    const bool has_points = series.points[i] != nullptr && !series.points[i]->empty();
    if (has_points && runs[i].get().steps.size() > 0) return true;
  }
  return false;
}

}  // namespace

std::string title_of_extra(const std::string& key) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"mfu", "MFU, %"}, {"kd_loss", "distillation loss"}, {"ce_loss", "cross-entropy"}};
  for (const auto& [name, title] : kNames) {
    if (key == name) return std::string(title);
  }
  return key;
}

namespace {

/// All that some run has numbers of: metrics, then further keys as they come, and those that only
/// validations have.
std::vector<Series> all_series(const RunViews& runs) {
  std::vector<Series> all;
  const auto add = [&](Series series) {
    series.of_runs.resize(runs.size());
    series.points.resize(runs.size());
    if (has_values(series, runs)) all.push_back(std::move(series));
  };
  for (const Metric metric : kMetrics) {
    // A schedule and a peak are not noisy.
    const bool is_noisy = metric != Metric::kLr && metric != Metric::kMemory;
    const bool is_loss = metric == Metric::kLoss;
    Series series{std::string(metric_title(metric)), is_loss, is_noisy, false, {}, {}};
    for (const RecordedRun& run : runs) {
      series.of_runs.push_back(&run.steps.of(metric));
      if (is_loss) series.points.push_back(&run.validations.losses);
    }
    add(std::move(series));
  }
  std::vector<std::string> keys;
  for (const RecordedRun& run : runs) {
    for (const ExtraColumn& column : run.steps.extras) {
      if (std::ranges::find(keys, column.key) == keys.end()) keys.push_back(column.key);
    }
  }
  for (const std::string& key : keys) {
    Series series{title_of_extra(key), false, true, true, {}, {}};
    for (const RecordedRun& run : runs) series.of_runs.push_back(run.steps.extra(key));
    add(std::move(series));
  }
  std::set<std::string> of_validations;
  for (const RecordedRun& run : runs) {
    for (const auto& [key, points] : run.validations.others) of_validations.insert(key);
  }
  for (const std::string& key : of_validations) {
    Series series{cat("validation: ", key), false, false, true, {}, {}};
    for (const RecordedRun& run : runs) {
      const auto found = run.validations.others.find(key);
      series.points.push_back(found == run.validations.others.end() ? nullptr : &found->second);
    }
    add(std::move(series));
  }
  return all;
}

/// The titles of what is not drawn.
std::string left_out_note(const RunViews& runs, const std::vector<Series>& left_out) {
  constexpr size_t kMostNames = 20;
  std::vector<std::string> names;
  for (const Series& series : left_out) names.push_back(series.title);
  for (const RecordedRun& run : runs) {
    for (const std::string& key : run.steps.other_keys) {
      if (std::ranges::find(names, key) == names.end()) names.push_back(key);
    }
  }
  return names.empty() ? ""
                       : cat("<p class=\"note\">Also recorded, and not drawn: ",
                             html_text(join_first(names, kMostNames)), "</p>\n");
}

std::string dot_key(size_t shape, const std::string& name) {
  return cat("<li><svg class=\"c0\" viewBox=\"0 0 28 10\" aria-hidden=\"true\">",
             dots_path(shape, {{14, 5}}), "</svg>validation: ", html_text(name), "</li>");
}

std::string mark_key(size_t kind) {
  const MarkKind& mark = kMarkKinds[kind];
  const std::string line =
      mark.has_line ? cat("<path class=\"", mark.event, "\" d=\"M14-3V13\"/>") : "";
  return cat("<li><svg class=\"mark", mark.is_bad ? " failed" : "",
             "\" viewBox=\"0 0 28 10\" aria-hidden=\"true\">", line, mark_glyph(kind, 14, 5),
             "</svg>", mark.words, "</li>");
}

/// What the colours, points and marks of the pictures stand for.
std::string legend(const RunViews& runs, const Parts& parts) {
  std::string out = "<ul class=\"legend\">";
  for (size_t i = 0; i < runs.size(); ++i) {
    out += cat("<li><svg class=\"", color_of(i),
               "\" viewBox=\"0 0 28 10\" aria-hidden=\"true\"><path "
               "class=\"key\" d=\"M0 5H28\"/></svg>",
               html_text(runs[i].get().name), "</li>");
  }
  for (size_t i = 0; i < parts.sets.size(); ++i) out += dot_key(i, parts.sets[i]);
  for (size_t kind = 0; kind < kMarkKinds.size(); ++kind) {
    const bool is_there = std::ranges::any_of(parts.marks, [&](const auto& marks) {
      return std::ranges::find(marks, kind, &EventMark::kind) != marks.end();
    });
    if (is_there) out += mark_key(kind);
  }
  const bool has_bad = std::ranges::any_of(runs, [](const RecordedRun& run) {
    const auto& losses = run.steps.of(Metric::kLoss);
    return !std::ranges::all_of(losses, [](double loss) { return std::isfinite(loss); });
  });
  return cat(out, "</ul>\n",
             has_bad ? "<p class=\"note\">Red triangles: values that are not finite.</p>\n" : "");
}

}  // namespace

std::string curves_section(const RunViews& runs) {
  constexpr size_t kMostMarks = 48, kLeastMarks = 4;
  std::vector<AxisValues> values;
  for (const AxisNames& names : kAxes) values.push_back(values_on(runs, names.axis));
  Parts parts{set_names(runs), {}};
  for (const RecordedRun& run : runs) {
    parts.marks.push_back(event_marks(run, share_of(kMostMarks, kLeastMarks, runs.size())));
  }
  std::vector<Series> all = all_series(runs), left_out;
  const size_t most_extras = runs.size() > kFewRuns ? kMostExtraChartsOfMany : kMostExtraCharts;
  const auto num_extras = static_cast<size_t>(std::ranges::count(all, true, &Series::is_extra));
  while (num_extras - left_out.size() > most_extras) {  // they are the last ones
    left_out.insert(left_out.begin(), std::move(all.back()));
    all.pop_back();
  }
  std::string out;
  for (const Series& series : all) {
    out += cat("<figure><figcaption>", html_text(series.title), "</figcaption>");
    for (size_t i = 0; i < std::size(kAxes); ++i) {
      out +=
          charts_on(runs, series, parts, kAxes[i], values[i], num_columns(runs.size(), all.size()));
    }
    out += "</figure>\n";
  }
  return cat(legend(runs, parts), "<section class=\"charts\" aria-label=\"curves\">\n",
             out.empty() ? "<p>No step has been recorded yet.</p>\n" : out, "</section>\n",
             left_out_note(runs, left_out));
}

}  // namespace automodel::report
