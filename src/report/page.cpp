#include "report/page.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/text.h"
#include "report/curve.h"
#include "report/curves_section.h"
#include "report/html.h"
#include "report/run_facts.h"
#include "report/style.h"

namespace automodel::report {

namespace {

std::string color_of(size_t run) {
  return cat("c", run % 8, run >= 8 ? " dashed" : "");
}

std::string header_row(const std::vector<std::string>& cells) {
  std::string out = "<thead><tr>";
  for (const std::string& cell : cells) out += cat("<th scope=\"col\">", escaped(cell), "</th>");
  return out + "</tr></thead>\n";
}

std::vector<std::string> with_names(std::string first, const std::vector<RecordedRun>& runs) {
  std::vector<std::string> cells = {std::move(first)};
  for (const RecordedRun& run : runs) cells.push_back(run.name);
  return cells;
}

std::string row(const std::string& key, const std::vector<std::string>& values) {
  std::string out = cat("<tr><th scope=\"row\">", escaped(key), "</th>");
  for (const std::string& value : values) {
    const bool is_failure = key == "state" && value.starts_with("failed");
    out += cat("<td", is_failure ? " class=\"failure\"" : "", ">", escaped(value), "</td>");
  }
  return out + "</tr>\n";
}

/// A row a fact, a column a run; facts that no run has are left out.
std::string runs_section(const std::vector<RecordedRun>& runs) {
  std::vector<std::vector<Fact>> facts;
  for (const RecordedRun& run : runs) facts.push_back(facts_of(run));
  std::string out = cat("<div class=\"wide\"><table>", header_row(with_names("", runs)), "<tbody>");
  for (size_t i = 0; i < facts[0].size(); ++i) {
    std::vector<std::string> values;
    for (const auto& of_run : facts) values.push_back(of_run[i].second);
    if (std::ranges::all_of(values, &std::string::empty)) continue;
    out += row(facts[0][i].first, values);
  }
  return out + "</tbody></table></div>\n";
}

/// The switches come first, as siblings of what they change: no script is needed.
std::string switches() {
  struct Switch {
    const char *id, *group, *text;
    bool is_on;
  };
  constexpr Switch kSwitches[] = {
      {"x-step", "x", "steps", true},       {"x-tokens", "x", "tokens", false},
      {"x-time", "x", "time", false},       {"y-linear", "y", "linear", true},
      {"y-log", "y", "logarithmic", false}, {"smooth", "", "smoothed", true}};
  std::string inputs, labels;
  for (const Switch& it : kSwitches) {
    const bool is_box = it.group[0] == '\0';
    inputs +=
        cat("<input class=\"switch\" id=\"", it.id, "\" type=\"", is_box ? "checkbox" : "radio",
            "\"", is_box ? "" : cat(" name=\"", it.group, "\""), it.is_on ? " checked" : "", ">");
    const std::string_view id = it.id;
    if (id == "x-step") labels += "<span>against</span>";
    if (id == "y-linear") labels += "<span>scale</span>";
    if (id == "smooth") labels += "<span>curve</span>";
    labels += cat("<label for=\"", it.id, "\">", it.text, "</label>");
  }
  return cat(inputs, "\n<div class=\"switches\">", labels, "</div>\n");
}

std::string legend(const std::vector<RecordedRun>& runs) {
  std::string out = "<ul class=\"legend\">";
  for (size_t i = 0; i < runs.size(); ++i) {
    out += cat("<li><svg class=\"", color_of(i),
               "\" viewBox=\"0 0 28 10\" aria-hidden=\"true\"><path "
               "class=\"key\" d=\"M0 5H28\"/></svg>",
               escaped(runs[i].name), "</li>");
  }
  return out +
         "</ul>\n<p class=\"note\">Dots: validation. Dotted lines: resumed. Red dashes: failed. "
         "Red "
         "triangles: not finite.</p>\n";
}

std::string differences_section(const std::vector<RecordedRun>& runs) {
  constexpr size_t kMostRows = 500;
  if (runs.size() < 2) return "";
  std::string out = "<h2>What differs between their recipes</h2>\n";
  const std::vector<Difference> all = differences(runs);
  if (all.empty()) return out + "<p>No value that is recorded.</p>\n";
  out += cat("<div class=\"wide\"><table>", header_row(with_names("key", runs)), "<tbody>");
  for (size_t i = 0; i < std::min(all.size(), kMostRows); ++i) {
    out += row(all[i].key, all[i].values);
  }
  out += "</tbody></table></div>\n";
  if (all.size() > kMostRows) out += cat("<p>", all.size() - kMostRows, " more</p>\n");
  return out;
}

std::string time_section(const std::vector<RecordedRun>& runs) {
  std::string out;
  for (const RecordedRun& run : runs) {
    const std::vector<TimeShare> shares = time_shares(run);
    double sum = 0;
    for (const TimeShare& share : shares) sum += share.seconds;
    if (sum <= 0) continue;
    constexpr double kWidth = 1000;  // of the bar, in its own units
    double at = 0;
    std::string bar;
    std::vector<std::string> texts;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (shares[i].seconds <= 0) continue;
      const double percent = 100 * shares[i].seconds / sum;
      const double width = kWidth * shares[i].seconds / sum;
      bar += cat("<rect class=\"c", i, "\" x=\"", format_fixed(at, 1), "\" width=\"",
                 format_fixed(width, 1), "\" height=\"20\"/>");
      at += width;
      texts.push_back(cat("<span class=\"c", i, "\">&#9632;</span> ", shares[i].name, " ",
                          span_text(shares[i].seconds), " (", format_fixed(percent, 1), "%)"));
    }
    out += cat("<h3>", escaped(run.name),
               "</h3><svg class=\"bar\" viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" "
               "aria-hidden=\"true\">",
               bar, "</svg><p>", join(texts, ", "), "</p>\n");
  }
  return out.empty() ? "" : cat("<h2>Where the time went</h2>\n", out);
}

std::string event_row(const RunEvent& event) {
  return cat("<tr", event.name == "failure" ? " class=\"failure\"" : "", "><td>",
             time_text(event.seconds), "</td><td>", escaped(event.name),
             "</td><td class=\"number\">", event.step ? cat(*event.step) : "", "</td><td>",
             escaped(detail_of(event)), "</td></tr>\n");
}

/// The first and the last events of a run; those between are counted by name.
std::string events_table(const RecordedRun& run) {
  constexpr size_t kMost = 60;
  const auto& events = run.events;
  std::string out = cat("<div class=\"wide\"><table>",
                        header_row({"time (UTC)", "event", "step", ""}), "<tbody>");
  const size_t num_first = events.size() <= kMost ? events.size() : kMost / 3;
  const size_t first_last = std::max(num_first, events.size() - std::min(events.size(), kMost));
  for (size_t i = 0; i < num_first; ++i) out += event_row(events[i]);
  if (first_last > num_first) {
    out += cat("<tr><td colspan=\"4\" class=\"note\">", first_last - num_first,
               " events are left out</td></tr>\n");
  }
  for (size_t i = first_last; i < events.size(); ++i) out += event_row(events[i]);
  return out + "</tbody></table></div>\n";
}

std::string events_section(const std::vector<RecordedRun>& runs) {
  std::string out;
  for (const RecordedRun& run : runs) {
    const bool has_notes = run.num_unread_lines > 0;
    if (run.events.empty() && !has_notes) continue;
    out += cat("<h3>", escaped(run.name), "</h3>\n");
    if (has_notes) {
      out += cat("<p class=\"note\">", run.num_unread_lines,
                 run.num_unread_lines == 1 ? " line of its files is" : " lines of its files are",
                 " half-written or no record, and left out</p>\n");
    }
    if (!run.events.empty()) out += events_table(run);
  }
  return out.empty() ? "" : cat("<h2>What happened</h2>\n", out);
}

/// Some of the records as numbers: for screen readers, and for who wants to copy them.
std::string numbers_of(const RecordedRun& run) {
  constexpr size_t kRows = 24;
  const StepTable& steps = run.steps;
  if (steps.size() == 0) return "";
  std::vector<std::string> names = {"step"};
  for (const Metric metric : kMetrics) names.emplace_back(metric_title(metric));
  std::string out = cat("<h3>", escaped(run.name), "</h3><div class=\"wide\"><table>",
                        header_row(names), "<tbody>");
  const size_t count = std::min(kRows, steps.size());
  for (size_t i = 0; i < count; ++i) {
    const size_t at = count == 1 ? 0 : i * (steps.size() - 1) / (count - 1);
    out += cat("<tr><th scope=\"row\">", static_cast<int64_t>(steps.step[at]), "</th>");
    for (const Metric metric : kMetrics) {
      out += cat("<td class=\"number\">", short_number(steps.of(metric)[at]), "</td>");
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string numbers_section(const std::vector<RecordedRun>& runs) {
  std::string out;
  for (const RecordedRun& run : runs) out += numbers_of(run);
  if (out.empty()) return "";
  return cat("<h2>Numbers</h2>\n<details><summary>some steps of every run</summary>\n", out,
             "</details>\n");
}

std::string values_of(const RecordedRun& run) {
  const Json* values = run.description.find("values");
  if (values == nullptr || !values->is_object()) return "";
  std::string out =
      cat("<details><summary>", escaped(run.name), "</summary>\n<div class=\"wide\"><table>",
          header_row({"key", "value", "origin"}), "<tbody>");
  for (const auto& [key, entry] : values->as_object()) {
    const Json* value = entry.find("value");
    const Json* origin = entry.find("origin");
    out += row(key, {value == nullptr ? "" : value_text(*value),
                     origin == nullptr ? "" : value_text(*origin)});
  }
  return out + "</tbody></table></div></details>\n";
}

std::string recipes_section(const std::vector<RecordedRun>& runs) {
  std::string out;
  for (const RecordedRun& run : runs) out += values_of(run);
  return out.empty() ? "" : cat("<h2>Recipes, with where each value comes from</h2>\n", out);
}

}  // namespace

std::string report_page(const std::vector<RecordedRun>& runs, const std::optional<LivePage>& live) {
  std::vector<std::string> names;
  for (const RecordedRun& run : runs) names.push_back(run.name);
  const std::string title = escaped(join_first(names, 3));
  return cat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
      "name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>",
      title, "</title><style>", kStyle, "</style>", live ? live_head(*live) : "", "</head>",
      live ? live_top(*live) : "<body>\n", "<h1>", title, "</h1>\n", switches(), "<main>\n",
      legend(runs), "<section class=\"charts\" aria-label=\"curves\">\n", curves_section(runs),
      "</section>\n<h2>Runs</h2>\n", runs_section(runs), differences_section(runs),
      time_section(runs), events_section(runs), numbers_section(runs), recipes_section(runs),
      "</main>", live ? live_end() : "", "</body></html>\n");
}

}  // namespace automodel::report
