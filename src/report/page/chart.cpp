#include "report/page/chart.h"

#include <algorithm>
#include <cmath>

#include "core/html_text.h"
#include "core/text.h"
#include "report/facts/html.h"
#include "report/facts/marks.h"

namespace automodel::report {

namespace {

// The picture's size and margins, in units of its viewBox.
constexpr int kWidth = 720, kHeight = 270, kLeft = 62, kRight = 12, kTop = 10, kBottom = 40;
constexpr int kYTicks = 5, kXTicks = 7;

/// From values to places in the picture.
class Scale final {
 public:
  explicit Scale(const ChartOptions& options) : options_(options) {
    low_ = height_of(options.y.low);
    high_ = height_of(options.y.high);
    if (high_ <= low_) {  // a constant lies in the middle
      low_ -= 1;
      high_ += 1;
    } else if (!options.is_log) {
      const double margin = (high_ - low_) * 0.04;
      low_ -= margin;
      high_ += margin;
    }
    if (options.has_marks) low_ -= (high_ - low_) * 0.09;  // they lie below the curves
  }

  int x(double value) const {
    const double size = options_.x.size();
    const double share = size > 0 ? (value - options_.x.low) / size : 0.5;
    return static_cast<int>(std::lround(kLeft + share * (kWidth - kLeft - kRight)));
  }
  int y(double value) const {
    const double share = (height_of(value) - low_) / (high_ - low_);
    const double place = kHeight - kBottom - share * (kHeight - kBottom - kTop);
    return static_cast<int>(std::lround(std::clamp(place, 0.0, 1.0 * kHeight)));
  }
  bool shows(double value) const { return !options_.is_log || value > 0; }

 private:
  double height_of(double value) const { return options_.is_log ? std::log10(value) : value; }

  const ChartOptions& options_;
  double low_ = 0, high_ = 1;
};

/// Whole steps and tokens, or times that are round in the unit that they are shown in.
std::vector<double> x_ticks(const ChartOptions& options) {
  if (options.x.is_empty) return {};
  const double unit = options.has_time ? time_unit(options.x.high) : 1;
  std::vector<double> ticks;
  const Range in_units{options.x.low / unit, options.x.high / unit, false};
  for (const double tick : ticks_of(in_units, kXTicks)) {
    if (options.has_time || tick == std::floor(tick)) ticks.push_back(tick * unit);
  }
  return ticks;
}

std::string axes(const ChartOptions& options, const Scale& scale) {
  std::string out = "<g class=\"axis\" aria-hidden=\"true\">";
  const auto y_ticks =
      options.is_log ? log_ticks_of(options.y, kYTicks) : ticks_of(options.y, kYTicks);
  const std::vector<std::string> y_texts = short_numbers(y_ticks);
  for (size_t i = 0; i < y_ticks.size(); ++i) {
    const int y = scale.y(y_ticks[i]);
    out += cat("<path d=\"M", kLeft, " ", y, "H", kWidth - kRight, "\"/><text x=\"", kLeft - 6,
               "\" y=\"", y + 4, "\" text-anchor=\"end\">", y_texts[i], "</text>");
  }
  const std::vector<double> ticks = x_ticks(options);
  const std::vector<std::string> x_texts = short_numbers(ticks);
  for (size_t i = 0; i < ticks.size(); ++i) {
    const int x = scale.x(ticks[i]);
    out += cat("<path d=\"M", x, " ", kHeight - kBottom, "v4\"/><text x=\"", x, "\" y=\"",
               kHeight - kBottom + 17, "\" text-anchor=\"middle\">",
               options.has_time ? span_text(ticks[i]) : x_texts[i], "</text>");
  }
  return out + cat("<text x=\"", (kLeft + kWidth - kRight) / 2, "\" y=\"", kHeight - 5,
                   "\" text-anchor=\"middle\">", options.x_title, "</text></g>");
}

/// A path of lines, written by the differences between its places: those are short.
class Path final {
 public:
  void move_or_line(int x, int y) {
    if (text_.empty()) {
      text_ = cat("M", x, " ", y);
    } else {
      text_ += cat("l", x - x_, y < y_ ? "" : " ", y - y_);
    }
    x_ = x;
    y_ = y;
  }
  void vertical(int y) {
    text_ += cat("v", y - y_);
    y_ = y;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int x_ = 0, y_ = 0;
};

/// Up and down through every column's lowest and highest value.
std::string raw_path(const Curve& curve, const Scale& scale) {
  Path path;
  bool is_up = true;  // alternating, so that neighbours are joined without going back
  for (const Column& column : curve.columns) {
    if (!scale.shows(column.high)) continue;
    const int high = scale.y(column.high);
    const int low = scale.shows(column.low) ? scale.y(column.low) : high;
    const int from = is_up ? low : high, to = is_up ? high : low;
    path.move_or_line(scale.x(column.x), from);
    if (to != from) path.vertical(to);
    is_up = !is_up;
  }
  return path.text();
}

std::string smooth_path(const Curve& curve, const Scale& scale) {
  Path path;
  for (const Column& column : curve.columns) {
    if (scale.shows(column.smooth)) path.move_or_line(scale.x(column.x), scale.y(column.smooth));
  }
  return path.text();
}

/// A path as an element; one of a single point would not be seen, so it gets a length.
std::string path_element(const std::string& path, std::string_view classes) {
  if (path.empty()) return "";
  return cat("<path class=\"", classes, "\" d=\"", path,
             path.find_first_of("lv") == std::string::npos ? "h1" : "", "\"/>");
}

std::string mark_element(const ChartMark& mark, const Scale& scale) {
  const MarkKind& kind = kMarkKinds[mark.kind];
  constexpr int kAbove = 8;  // of the axis
  const int x = scale.x(mark.x);
  std::string out = cat("<g class=\"mark", kind.is_bad ? " failed" : "", "\"><title>",
                        html_text(mark.text), "</title>");
  if (kind.has_line) {
    out +=
        cat("<path class=\"", kind.event, "\" d=\"M", x, " ", kTop, "V", kHeight - kBottom, "\"/>");
  }
  return cat(out, mark_glyph(mark.kind, x, kHeight - kBottom - kAbove), "</g>");
}

std::string dots_element(const ChartDots& dots, const Scale& scale) {
  std::vector<std::pair<int, int>> places;
  for (const auto& [x, y] : dots.places) {
    if (std::isfinite(y) && scale.shows(y)) places.emplace_back(scale.x(x), scale.y(y));
  }
  return dots_path(dots.shape, places);
}

std::string run_elements(const ChartCurve& run, const Scale& scale) {
  const std::string color = cat("c", run.color % 8, run.color >= 8 ? " dashed" : "");
  std::string out = cat("<g class=\"", color, "\"><title>", html_text(run.name), "</title>");
  out += path_element(raw_path(run.curve, scale), "raw");
  out += path_element(smooth_path(run.curve, scale), "smooth");
  for (const ChartDots& dots : run.dots) out += dots_element(dots, scale);
  std::string bad;
  for (const double x : run.curve.non_finite_x) {
    bad += cat("M", scale.x(x), " ", kTop, "l3-7h-6z");
  }
  if (!bad.empty()) out += cat("<path class=\"bad\" d=\"", bad, "\"/>");
  for (const ChartMark& mark : run.marks) out += mark_element(mark, scale);
  return out + "</g>";
}

/// "loss against steps, linear: a from 7.67 to 4.8".
std::string spoken(const std::vector<ChartCurve>& curves, const ChartOptions& options) {
  constexpr size_t kMost = 8;
  std::vector<std::string> parts;
  for (const ChartCurve& run : curves) {
    const auto dots = std::ranges::find_if(
        run.dots, [](const ChartDots& points) { return !points.places.empty(); });
    const bool has_curve = !run.curve.columns.empty();
    if (!has_curve && dots == run.dots.end()) continue;
    const double first = has_curve ? run.curve.first : dots->places.front().second;
    const double last = has_curve ? run.curve.last : dots->places.back().second;
    parts.push_back(cat(run.name, " from ", short_number(first), " to ", short_number(last)));
  }
  return cat(options.title, " against ", options.x_title, options.is_log ? ", logarithmic" : "",
             ": ", join_first(parts, kMost));
}

}  // namespace

std::string dots_path(size_t shape, const std::vector<std::pair<int, int>>& places) {
  if (places.empty()) return "";
  // A line without length has the shape of its ends.
  constexpr std::string_view kShapes[kNumDotShapes] = {
      "h0", "h0", "m0-4.5l4.5 4.5-4.5 4.5-4.5-4.5z", "m0-4.5l4.5 8h-9z"};
  constexpr std::string_view kClasses[kNumDotShapes] = {"dots disc", "dots square", "dots filled",
                                                        "dots filled"};
  const size_t number = shape % kNumDotShapes;
  std::string path;
  for (const auto& [x, y] : places) path += cat("M", x, " ", y, kShapes[number]);
  return cat("<path class=\"", kClasses[number], "\" d=\"", path, "\"/>");
}

std::string mark_glyph(size_t kind, int x, int y) {
  const std::string_view glyph = kMarkKinds[kind].glyph;
  return glyph.empty() ? "" : cat("<path class=\"glyph\" d=\"M", x, " ", y, glyph, "\"/>");
}

std::string chart_svg(const std::vector<ChartCurve>& curves, const ChartOptions& options) {
  const Scale scale(options);
  std::string out =
      cat("<svg viewBox=\"0 0 ", kWidth, " ", kHeight, "\" role=\"img\" aria-label=\"",
          html_text(spoken(curves, options)), "\">", axes(options, scale));
  for (const ChartCurve& run : curves) out += run_elements(run, scale);
  return out + "</svg>\n";
}

}  // namespace automodel::report
