#include "report/page/page.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/html_text.h"
#include "core/text.h"
#include "report/facts/html.h"
#include "report/facts/run_facts.h"
#include "report/page/curves_section.h"
#include "report/page/data_section.h"
#include "report/page/events_section.h"
#include "report/page/experts_section.h"
#include "report/page/html_table.h"
#include "report/page/memory_section.h"
#include "report/page/step_time_section.h"
#include "report/page/style.h"

namespace automodel::report {

namespace {

/// A row a fact, a column a run; facts that no run has are left out.
std::string runs_section(const RunViews& runs) {
  std::vector<std::vector<Fact>> facts;
  for (const RecordedRun& run : runs) facts.push_back(facts_of(run));
  std::string rows;
  for (size_t i = 0; i < facts[0].size(); ++i) {
    std::vector<std::string> values;
    for (const auto& of_run : facts) values.push_back(of_run[i].second);
    if (!std::ranges::all_of(values, &std::string::empty)) rows += row(facts[0][i].first, values);
  }
  return wide_table(with_names("", runs), rows);
}

/// What files of another version have to be told with.
std::string format_notes(const RunViews& runs) {
  std::string out;
  for (const RecordedRun& run : runs) {
    const std::string note = format_note(run.description);
    if (note.empty()) continue;
    out +=
        cat("<p class=\"warning\" role=\"note\">", html_text(cat(run.name, ": ", note)), "</p>\n");
  }
  return out;
}

struct Switch {
  const char *id, *text;
  bool is_on;
};

/// Inputs with their labels, of which one is on, or each by itself without a `group`.
std::string switch_group(const char* title, const char* group, std::span<const Switch> switches) {
  std::string out = cat("<fieldset><legend>", title, "</legend>");
  const bool is_radio = *group != '\0';
  for (const Switch& it : switches) {
    out += cat("<input class=\"switch\" id=\"", it.id, "\" type=\"",
               is_radio ? "radio" : "checkbox", "\"", is_radio ? cat(" name=\"", group, "\"") : "",
               it.is_on ? " checked" : "", "><label for=\"", it.id, "\">", it.text, "</label>");
  }
  return out + "</fieldset>";
}

/// The style sheet asks which are on: no script is needed.
std::string switches() {
  constexpr Switch kAxes[] = {
      {"x-step", "steps", true}, {"x-tokens", "tokens", false}, {"x-time", "time", false}};
  constexpr Switch kScales[] = {{"y-linear", "linear", true}, {"y-log", "logarithmic", false}};
  constexpr Switch kCurves[] = {{"smooth", "smoothed", true}};
  return cat("<div class=\"switches\">", switch_group("against", "x", kAxes),
             switch_group("scale", "y", kScales), switch_group("curve", "", kCurves), "</div>\n");
}

std::string differences_section(const RunViews& runs) {
  constexpr size_t kMostRows = 500;
  if (runs.size() < 2) return "";
  std::string out = "<h2>What differs between their recipes</h2>\n";
  const std::vector<Difference> all = differences(runs);
  if (all.empty()) return out + "<p>No value that is recorded.</p>\n";
  std::string rows;
  for (size_t i = 0; i < std::min(all.size(), kMostRows); ++i) {
    rows += row(all[i].key, all[i].values);
  }
  out += wide_table(with_names("key", runs), rows);
  if (all.size() > kMostRows) out += cat("<p>", all.size() - kMostRows, " more</p>\n");
  return out;
}

std::string time_section(const RunViews& runs) {
  std::string out;
  for (const RecordedRun& run : runs) {
    const std::vector<TimeShare> shares = time_shares(run);
    double sum = 0;
    for (const TimeShare& share : shares) sum += share.seconds;
    if (sum <= 0) continue;
    std::vector<BarPart> bar;
    std::vector<std::string> texts;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (shares[i].seconds <= 0) continue;
      const double share = shares[i].seconds / sum;
      bar.push_back({cat("c", i), share});
      texts.push_back(cat("<span class=\"c", i, "\">&#9632;</span> ", shares[i].name, " ",
                          span_text(shares[i].seconds), " (", percent_text(share), ")"));
    }
    out += cat("<h3>", html_text(run.name), "</h3>", share_bar(bar), "<p>", join(texts, ", "),
               "</p>\n");
  }
  return out.empty() ? "" : cat("<h2>Where the time went</h2>\n", out);
}

/// Some of the records as numbers: for screen readers, and for who wants to copy them.
std::string numbers_of(const RecordedRun& run) {
  constexpr size_t kRows = 24;
  const StepTable& steps = run.steps;
  if (steps.size() == 0) return "";
  std::vector<std::string> names = {"step"};
  for (const Metric metric : kMetrics) names.emplace_back(metric_title(metric));
  for (const ExtraColumn& column : steps.extras) names.push_back(title_of_extra(column.key));
  std::string rows;
  const size_t count = std::min(kRows, steps.size());
  for (size_t i = 0; i < count; ++i) {
    const size_t at = count == 1 ? 0 : i * (steps.size() - 1) / (count - 1);
    std::vector<std::string> cells;
    for (const Metric metric : kMetrics) cells.push_back(short_number(steps.of(metric)[at]));
    for (const ExtraColumn& column : steps.extras) {
      cells.push_back(std::isnan(column.values[at]) ? "" : short_number(column.values[at]));
    }
    rows += number_row(cat(static_cast<int64_t>(steps.step[at])), cells);
  }
  return cat("<h3>", html_text(run.name), "</h3>", number_table(names, rows));
}

std::string numbers_section(const RunViews& runs) {
  std::string out;
  for (const RecordedRun& run : runs) out += numbers_of(run);
  if (out.empty()) return "";
  return cat("<h2>Numbers</h2>\n<details><summary>some steps of every run</summary>\n", out,
             "</details>\n");
}

std::string values_of(const RecordedRun& run) {
  const Json* values = run.description.find("values");
  if (values == nullptr || !values->is_object()) return "";
  std::string rows;
  for (const auto& [key, entry] : values->as_object()) {
    const Json* value = entry.find("value");
    const Json* origin = entry.find("origin");
    rows += row(key, {value == nullptr ? "" : value_text(*value),
                      origin == nullptr ? "" : value_text(*origin)});
  }
  return cat("<details><summary>", html_text(run.name), "</summary>\n",
             wide_table({"key", "value", "origin"}, rows), "</details>\n");
}

std::string recipes_section(const RunViews& runs) {
  std::string out;
  for (const RecordedRun& run : runs) out += values_of(run);
  return out.empty() ? "" : cat("<h2>Recipes, with where each value comes from</h2>\n", out);
}

}  // namespace

std::string report_page(const RunViews& runs, const std::optional<LivePage>& live) {
  std::vector<std::string> names;
  for (const RecordedRun& run : runs) names.push_back(run.name);
  const std::string title = html_text(join_first(names, 3));
  std::string page =
      cat("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
          "name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>",
          title, "</title><style>", kStyle, "</style>", live ? live_head(*live) : "", "</head>",
          live ? live_top(*live) : "<body>\n", "<h1>", title, "</h1>\n", switches(), "<main>\n");
  page += format_notes(runs);
  page += curves_section(runs);
  page += cat("<h2>Runs</h2>\n", runs_section(runs));
  // Piece by piece: a page of many runs is megabytes, which are not copied more than once.
  for (const auto& section :
       {advice_section, differences_section, time_section, step_time_section, memory_section,
        data_section, experts_section, events_section, numbers_section, recipes_section}) {
    page += section(runs);
  }
  page += cat("</main>", live ? live_end() : "", "</body></html>\n");
  return page;
}

std::string report_page(const std::vector<RecordedRun>& runs, const std::optional<LivePage>& live) {
  return report_page(RunViews(runs.begin(), runs.end()), live);
}

}  // namespace automodel::report
