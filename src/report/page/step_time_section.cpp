#include "report/page/step_time_section.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/html_text.h"
#include "core/text.h"
#include "report/facts/html.h"
#include "report/facts/run_facts.h"
#include "report/page/html_table.h"

namespace automodel::report {

namespace {

constexpr size_t kRest = kNumTimeShares - 1;

/// "c2", the colour of a share.
std::string share_color(size_t share) {
  constexpr std::string_view kColors[kNumTimeShares] = {"c1", "c0", "c2", "c3", "rest"};
  return std::string(kColors[share]);
}

bool is_known(const TimeShares& shares) {
  return std::isfinite(shares[kRest]);
}

/// Areas on each other from the first step to the last.
std::string stacked_picture(const RecordedRun& run) {
  constexpr size_t kColumns = 120;
  constexpr int kHeight = 100;
  const size_t num_columns = std::min(kColumns, run.steps.size());
  std::array<std::string, kNumTimeShares> areas;
  for (size_t i = 0; i < num_columns; ++i) {
    const size_t begin = i * run.steps.size() / num_columns;
    const size_t end = (i + 1) * run.steps.size() / num_columns;
    const TimeShares shares = step_time_shares(run.steps, begin, end);
    if (!is_known(shares)) continue;
    double low = 0;
    for (size_t share = 0; share < kNumTimeShares; ++share) {
      const double high = low + std::max(0.0, std::isfinite(shares[share]) ? shares[share] : 0);
      const auto top = std::lround(kHeight * (1 - high)), bottom = std::lround(kHeight * (1 - low));
      if (top < bottom) {
        areas[share] += cat("M", i, " ", bottom, "V", top, "h1V", bottom, "z");
      }
      low = high;
    }
  }
  std::string out =
      cat("<svg class=\"stacked\" viewBox=\"0 0 ", num_columns,
          " 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"shares of the steps' time "
          "from the first step to the last, which the table below has\">");
  for (size_t share = 0; share < kNumTimeShares; ++share) {
    if (areas[share].empty()) continue;
    out += cat("<path class=\"", share_color(share), "\" d=\"", areas[share], "\"><title>",
               kTimeShareNames[share], "</title></path>");
  }
  return out + "</svg>";
}

/// The legend, with the shares of the whole run.
std::string whole_run(const TimeShares& shares) {
  std::vector<std::string> texts;
  for (size_t share = 0; share < kNumTimeShares; ++share) {
    if (!std::isfinite(shares[share])) continue;
    texts.push_back(cat("<span class=\"", share_color(share), "\">&#9632;</span> ",
                        kTimeShareNames[share], " ", percent_text(shares[share])));
  }
  return cat("<p>", join(texts, ", "), "</p>\n");
}

/// The shares of some stretches of the run.
std::string stretches_table(const RecordedRun& run) {
  constexpr size_t kStretches = 8;
  const size_t num_rows = run.steps.size(), count = std::min(kStretches, num_rows);
  std::string rows;
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = i * num_rows / count, end = (i + 1) * num_rows / count;
    const TimeShares shares = step_time_shares(run.steps, begin, end);
    const auto first = static_cast<int64_t>(run.steps.step[begin]);
    const auto last = static_cast<int64_t>(run.steps.step[end - 1]);
    std::vector<std::string> cells;
    for (const double share : shares) cells.push_back(percent_text(share));
    const std::vector<double>& whole = run.steps.of(StepPart::kWhole);
    cells.push_back(short_number(median_of({whole.begin() + static_cast<std::ptrdiff_t>(begin),
                                            whole.begin() + static_cast<std::ptrdiff_t>(end)})));
    rows += number_row(first == last ? cat(first) : cat(first, " to ", last), cells);
  }
  std::vector<std::string> head = {"steps"};
  head.insert(head.end(), kTimeShareNames.begin(), kTimeShareNames.end());
  head.emplace_back("a step (median), s");
  return cat("<details><summary>over the run</summary>\n", number_table(head, rows),
             "</details>\n");
}

/// What was planned of the waiting in a pipeline, beside what was measured.
std::string pipeline_text(const RecordedRun& run, const TimeShares& shares) {
  const double planned = number_at(run.description, "plan.pipeline_bubble");
  if (!std::isfinite(planned)) return "";
  const double measured = shares[static_cast<size_t>(StepPart::kWait)];
  return cat("<p>Pipeline: a bubble of ", percent_text(planned), " is planned; rank 0 waited ",
             std::isfinite(measured) ? cat(percent_text(measured), " of its steps' time")
                                     : std::string("for a time that is not recorded"),
             ".</p>\n");
}

/// A step's parts without the rest, in seconds; absent where it has none. Notes which it has.
std::optional<TimeShares> seconds_of_row(const StepTable& steps, size_t row,
                                         std::array<bool, kNumTimeShares>& has) {
  TimeShares seconds{};
  bool has_any = false;
  for (size_t part = 0; part < kRest; ++part) {
    const double value = steps.parts[part][row];
    if (!(value >= 0) || !std::isfinite(value)) continue;
    seconds[part] = value;
    has[part] = has_any = true;
  }
  if (!has_any) return std::nullopt;
  double waited = seconds[static_cast<size_t>(StepPart::kWait)];
  for (const StepPart part : {StepPart::kForwardBackward, StepPart::kUpdate}) {
    double& of_part = seconds[static_cast<size_t>(part)];
    const double taken = std::min(waited, of_part);
    of_part -= taken;
    waited -= taken;
  }
  return seconds;
}

}  // namespace

TimeShares step_time_shares(const StepTable& steps, size_t begin, size_t end) {
  TimeShares shares, sums{};
  shares.fill(std::nan(""));
  double whole = 0, known = 0;
  std::array<bool, kNumTimeShares> has{};
  for (size_t row = begin; row < end; ++row) {
    const auto seconds = seconds_of_row(steps, row, has);
    if (!seconds) continue;
    double of_row = 0;
    for (size_t part = 0; part < kRest; ++part) {
      sums[part] += (*seconds)[part];
      of_row += (*seconds)[part];
    }
    known += of_row;
    const double all = steps.of(StepPart::kWhole)[row];
    whole += std::isfinite(all) ? std::max(all, of_row) : of_row;
  }
  if (whole <= 0) return shares;
  for (size_t part = 0; part < kRest; ++part) {
    if (has[part]) shares[part] = sums[part] / whole;
  }
  shares[kRest] = (whole - known) / whole;
  return shares;
}

std::string step_time_section(const RunViews& runs) {
  std::string out;
  for (const RecordedRun& run : runs) {
    const TimeShares shares = step_time_shares(run.steps, 0, run.steps.size());
    const std::string pipeline = pipeline_text(run, shares);
    if (!is_known(shares) && pipeline.empty()) continue;
    out += cat("<h3>", html_text(run.name), "</h3>\n");
    if (is_known(shares)) {
      out += cat(stacked_picture(run), whole_run(shares), pipeline, stretches_table(run));
    } else {
      out += pipeline;
    }
  }
  return out.empty() ? "" : cat("<h2>Where a step's time goes</h2>\n", out);
}

}  // namespace automodel::report
