#include "report/watch/watch_picture.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/text.h"
#include "core/utf8.h"
#include "report/facts/html.h"
#include "report/facts/run_facts.h"
#include "report/facts/time_left.h"
#include "report/page/memory_section.h"
#include "report/records/curve.h"
#include "report/watch/braille.h"

namespace automodel::report {

namespace {

using Runs = std::vector<const RecordedRun*>;
using Lines = std::vector<std::string>;

constexpr int kLabelWidth = 8;  // of a chart's numbers

/// Where the parts of the picture lie.
struct Layout {
  int num_columns = 2;
  int num_rows = 3;
  int cell_width = 40;
  int cell_height = 6;  ///< with the chart's title
};

/// `num_above`: lines above the charts.
Layout layout_of(const Terminal& terminal, size_t num_above) {
  Layout layout;
  layout.num_columns = terminal.width >= 120 ? 3 : terminal.width >= 60 ? 2 : 1;
  layout.num_rows = (static_cast<int>(kNumMetrics) + layout.num_columns) / layout.num_columns;
  const int left = terminal.height - static_cast<int>(num_above) - 1;  // a line below stays free
  layout.cell_height = std::max(3, left / layout.num_rows);
  layout.num_rows = std::max(1, std::min(layout.num_rows, left / layout.cell_height));
  layout.cell_width = terminal.width / layout.num_columns;
  return layout;
}

std::string number_or_dash(const std::vector<double>& values) {
  return values.empty() ? "-" : short_number(values.back());
}

/// "0.25 GiB of 0.31 planned  MFU 31%", as far as it is known.
std::string resources_text(const RecordedRun& run) {
  constexpr double kMib = 1 << 20, kGib = 1 << 30;
  std::vector<std::string> parts;
  const double planned = planned_peak(run), measured = measured_peak(run);
  if (planned > 0 && measured >= 0) {
    const bool is_small = std::max(planned, measured) < 0.1 * kGib;
    const double unit = is_small ? kMib : kGib;
    parts.push_back(cat(format_fixed(measured / unit, 2), is_small ? " MiB" : " GiB", " of ",
                        format_fixed(planned / unit, 2), " planned"));
  }
  const std::vector<double>* mfu = run.steps.extra("mfu");
  if (mfu != nullptr && !mfu->empty() && std::isfinite(mfu->back())) {
    parts.push_back(cat("MFU ", short_number(mfu->back()), "%"));
  }
  return join(parts, "  ");
}

std::string run_line(const RecordedRun& run) {
  const StepTable& steps = run.steps;
  const std::string done =
      steps.step.empty() ? "0" : cat(static_cast<int64_t>(steps.step.back()) + 1);
  const auto most = run.max_steps();
  const double left = seconds_left(run);
  std::vector<std::string> parts = {run.name, cat("step ", done, most ? cat("/", *most) : ""),
                                    cat("loss ", number_or_dash(steps.of(Metric::kLoss)))};
  if (std::isfinite(left)) parts.push_back(cat("about ", span_text(left), " left"));
  // How it ended counts more than what it took; that it runs does not.
  const std::string resources = resources_text(run);
  if (!run.has_ended() && !resources.empty()) parts.push_back(resources);
  parts.push_back(state_text(run));
  if (run.has_ended() && !resources.empty()) parts.push_back(resources);
  return join(parts, "  ");
}

std::string in_code(const std::string& text, int code) {
  return cat("\x1b[", code, "m", text, "\x1b[0m");
}

/// The lines of the runs, with what somebody should look at; a third of the terminal at most.
Lines runs_above(const Runs& runs, const Terminal& terminal) {
  constexpr int kRed = 31, kYellow = 33;
  const auto most_lines = static_cast<size_t>(std::max(1, terminal.height / 3));
  const size_t num_shown =
      std::min(runs.size(), static_cast<size_t>(std::max(1, terminal.height / 4)));
  size_t num_free = most_lines - std::min(most_lines, num_shown);
  Lines lines;
  const auto add_note = [&](const std::string& text, int code) {
    if (text.empty() || num_free == 0) return;
    --num_free;
    const std::string line = fitted(text, terminal.width);
    lines.push_back(terminal.has_color ? in_code(line, code) : line);
  };
  for (size_t i = 0; i < num_shown; ++i) {
    const size_t more = i + 1 == num_shown ? runs.size() - i - 1 : 0;
    const std::string line =
        fitted(cat(run_line(*runs[i]), more > 0 ? cat("  (and ", more, " more runs)") : ""),
               terminal.width);
    lines.push_back(terminal.has_color ? in_color(line, i) : line);
    const std::string note = format_note(runs[i]->description);
    add_note(note.empty() ? "" : cat("  ! ", note), kYellow);
    const std::string alert = alert_text(*runs[i]);
    add_note(alert.empty() ? "" : cat("  ", alert), alert.starts_with("x") ? kRed : kYellow);
  }
  return lines;
}

/// The latest value, and from where to where the chart reaches.
std::string chart_title(const Runs& runs, Metric metric) {
  std::vector<std::string> latest;
  for (const RecordedRun* run : runs) latest.push_back(number_or_dash(run->steps.of(metric)));
  return cat(metric_title(metric), " ", join(latest, " "));
}

Lines chart_cell(const Runs& runs, Metric metric, const Layout& layout, const Terminal& terminal) {
  DotChart chart;
  chart.width = layout.cell_width - kLabelWidth - 2;
  chart.height = layout.cell_height - 1;
  chart.has_color = terminal.has_color;
  for (const RecordedRun* run : runs) {
    for (const double step : run->steps.step) chart.x.add(step);
    for (const double value : run->steps.of(metric)) chart.y.add(value);
  }
  std::vector<Curve> curves;
  for (const RecordedRun* run : runs) {
    curves.push_back(
        make_curve(run->steps.step, run->steps.of(metric), chart.x, chart.width * 2, 1));
  }
  std::vector<DotCurve> drawn;
  for (size_t i = 0; i < curves.size(); ++i) drawn.push_back({&curves[i], i});
  Lines lines = {fitted(chart_title(runs, metric), layout.cell_width - 1) + " "};
  const Lines dots = draw_dots(drawn, chart);
  for (size_t i = 0; i < dots.size(); ++i) {
    std::string label;
    if (i == 0 && !chart.y.is_empty) label = short_number(chart.y.high);
    if (i + 1 == dots.size() && !chart.y.is_empty) label = short_number(chart.y.low);
    const int fill = std::max(0, kLabelWidth - static_cast<int>(label.size()));
    lines.push_back(cat(std::string(static_cast<size_t>(fill), ' '), label, " ", dots[i], " "));
  }
  return lines;
}

/// The latest events of all runs, the newest last.
Lines events_cell(const Runs& runs, const Layout& layout) {
  std::vector<std::pair<double, std::string>> all;
  for (const RecordedRun* run : runs) {
    for (const RunEvent& event : run->events) {
      const std::string time = time_text(event.seconds);
      const std::string where = runs.size() > 1 ? cat(run->name, ": ") : "";
      all.emplace_back(event.seconds, cat(time.size() > 11 ? time.substr(11) : "", " ", where,
                                          event.name, " ", detail_of(event)));
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Lines lines = {fitted("latest events (UTC)", layout.cell_width)};
  const size_t most = static_cast<size_t>(layout.cell_height - 1);
  const size_t first = all.size() - std::min(all.size(), most);
  for (size_t i = first; i < all.size(); ++i) {
    lines.push_back(fitted(all[i].second, layout.cell_width - 1) + " ");
  }
  lines.resize(static_cast<size_t>(layout.cell_height), fitted("", layout.cell_width));
  return lines;
}

/// How many columns of a terminal a character takes: two of most East Asian ones and of pictures,
/// none of marks on the character before.
int columns_of(uint32_t code) {
  constexpr uint32_t kFirstOther = 0x300;
  if (code < kFirstOther) return 1;
  static const locale_t unicode = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (unicode == nullptr) return 1;
  const locale_t before = ::uselocale(unicode);
  const int columns = ::wcwidth(static_cast<wchar_t>(code));
  ::uselocale(before);
  return columns < 0 ? 1 : columns;
}

}  // namespace

std::string fitted(const std::string& text, int width) {
  std::string out;
  int used = 0;
  for (size_t at = 0; at < text.size();) {
    uint32_t code = 0;
    const size_t size = decode_utf8(text, at, code);
    const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    const bool is_shown = size > 0 && !is_control;
    const int columns = is_shown ? columns_of(code) : 1;
    if (used + columns > width) break;
    used += columns;
    out += is_shown ? text.substr(at, size) : "?";
    at += std::max<size_t>(size, 1);
  }
  return out + std::string(static_cast<size_t>(std::max(0, width - used)), ' ');
}

std::vector<std::string> watch_picture(const std::vector<const RecordedRun*>& runs,
                                       const Terminal& terminal) {
  Lines lines = runs_above(runs, terminal);
  const Layout layout = layout_of(terminal, lines.size());
  std::vector<Lines> cells;
  for (const Metric metric : kMetrics) cells.push_back(chart_cell(runs, metric, layout, terminal));
  cells.push_back(events_cell(runs, layout));
  const auto columns = static_cast<size_t>(layout.num_columns);
  for (size_t row = 0; row < static_cast<size_t>(layout.num_rows); ++row) {
    for (size_t line = 0; line < static_cast<size_t>(layout.cell_height); ++line) {
      std::string text;
      for (size_t i = row * columns; i < std::min((row + 1) * columns, cells.size()); ++i) {
        text += cells[i][line];
      }
      lines.push_back(text);
    }
  }
  return lines;
}

std::string step_text(const RecordedRun& run, size_t row) {
  const StepTable& steps = run.steps;
  const auto most = run.max_steps();
  std::string text = cat(run.name, " | step ", static_cast<int64_t>(steps.step[row]),
                         most ? cat(" of ", *most) : "");
  for (const Metric metric : kMetrics) {
    text += cat(" | ", metric_key(metric), " ", short_number(steps.of(metric)[row]));
  }
  return fitted(text, static_cast<int>(text.size()));
}

std::string event_text(const RecordedRun& run, const RunEvent& event) {
  const std::string detail = detail_of(event);
  const std::string text =
      cat(run.name, " | ", event.name, event.step ? cat(" | step ", *event.step) : "",
          detail.empty() ? "" : cat(" | ", detail));
  return fitted(text, static_cast<int>(text.size()));
}

std::string alert_text(const RecordedRun& run) {
  const auto alert = latest_alert(run.events);
  if (!alert) return "";
  const std::string time = time_text(alert->seconds);
  return cat(alert->event == "failure" ? "x " : "! ", alert->event,
             time.size() > 11 ? cat(" ", time.substr(11)) : "", ": ", alert->text);
}

}  // namespace automodel::report
