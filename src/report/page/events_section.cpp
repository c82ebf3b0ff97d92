#include "report/page/events_section.h"

#include <algorithm>
#include <map>
#include <vector>

#include "core/html_text.h"
#include "core/text.h"
#include "core/utf8.h"
#include "report/facts/html.h"
#include "report/facts/run_facts.h"
#include "report/page/html_table.h"

namespace automodel::report {

namespace {

constexpr size_t kMostText = 1000;

/// How many of one name are shown at the beginning and the end.
struct Most {
  int64_t first, latest;
};

/// `num_runs` are on the page: many of them are told shorter.
Most most_of(const RunEvent& event, int64_t num_all, size_t num_runs) {
  constexpr size_t kFewRuns = 4;
  // These have sections of their own.
  if (event.name == "expert_load" || event.name == "memory" || event.name == "data") return {1, 1};
  const bool has_room = num_runs <= kFewRuns;
  const int64_t all_of_short_runs = has_room ? 60 : 15;
  if (num_all <= all_of_short_runs) return {all_of_short_runs, 0};
  if (event.name == "warning") return has_room ? Most{20, 5} : Most{4, 1};
  if (is_notable(event.name)) return has_room ? Most{20, 30} : Most{4, 6};
  return {2, 3};
}

std::string event_row(const RunEvent& event) {
  const bool is_failure = event.name == "failure";
  const char* css = is_failure               ? " class=\"failure\""
                    : is_notable(event.name) ? " class=\"told\""
                                             : "";
  return cat("<tr", css, "><td class=\"when\">", time_text(event.seconds), "</td><td>",
             html_text(event.name), "</td><td class=\"number\">",
             event.step ? cat(*event.step) : "", "</td><td>",
             html_text(shortened(detail_of(event), kMostText)), "</td></tr>\n");
}

/// "1,234 save, 56 validation", by name.
std::string counts_text(const std::map<std::string, int64_t>& counts) {
  std::vector<std::string> texts;
  for (const auto& [name, count] : counts) texts.push_back(cat(count, " ", name));
  return join(texts, ", ");
}

std::string events_table(const RecordedRun& run, size_t num_runs) {
  std::map<std::string, int64_t> left_out;
  for (const auto& [name, total] : run.events.totals()) left_out[name] = total.number;
  std::map<std::string, int64_t> num_seen, num_kept;
  for (const RunEvent& event : run.events) ++num_kept[event.name];
  std::string rows;
  for (const RunEvent& event : run.events) {
    const Most most = most_of(event, run.events.count(), num_runs);
    const int64_t number = num_seen[event.name]++;
    const bool is_shown = number < most.first || number + most.latest >= num_kept[event.name];
    if (!is_shown) continue;
    rows += event_row(event);
    --left_out[event.name];
  }
  std::erase_if(left_out, [](const auto& count) { return count.second <= 0; });
  const std::string note =
      left_out.empty()
          ? ""
          : cat("<p class=\"note\">Between the first and the latest of their kind, left "
                "out here: ",
                html_text(counts_text(left_out)), "</p>\n");
  return wide_table({"time (UTC)", "event", "step", ""}, rows, "events") + note;
}

/// What several pieces of advice of a kind come to.
struct Said {
  int64_t number = 0;
  const RunEvent* latest = nullptr;
};

std::string advice_of(const RecordedRun& run) {
  std::map<std::string, Said> kinds;
  for (const RunEvent& event : run.events) {
    if (event.name != "advice") continue;
    Said& said = kinds[text_of(event.fields, "kind")];
    ++said.number;
    said.latest = &event;
  }
  std::string items;
  for (const auto& [kind, said] : kinds) {
    std::vector<std::string> when;
    if (said.number > 1) when.push_back(cat(said.number, " times, here the latest"));
    if (said.latest->step) when.push_back(cat("step ", *said.latest->step));
    items += cat("<li><b>", html_text(kind.empty() ? "advice" : kind), "</b>",
                 when.empty() ? "" : cat(" (", join(when, ", "), ")"), ": ",
                 html_text(shortened(text_of(said.latest->fields, "text"), kMostText)), "</li>\n");
  }
  return items.empty()
             ? ""
             : cat("<h3>", html_text(run.name), "</h3>\n<ul class=\"advice\">\n", items, "</ul>\n");
}

}  // namespace

std::string advice_section(const RunViews& runs) {
  std::string out;
  for (const RecordedRun& run : runs) out += advice_of(run);
  return out.empty() ? "" : cat("<h2>Advice</h2>\n", out);
}

std::string events_section(const RunViews& runs) {
  std::string out;
  for (const RecordedRun& run : runs) {
    const bool has_notes = run.num_unread_lines > 0;
    if (run.events.empty() && !has_notes) continue;
    out += cat("<h3>", html_text(run.name), "</h3>\n");
    if (has_notes) {
      out += cat("<p class=\"note\">", run.num_unread_lines,
                 run.num_unread_lines == 1 ? " line of its files is" : " lines of its files are",
                 " half-written or no record, and left out</p>\n");
    }
    if (!run.events.empty()) out += events_table(run, runs.size());
  }
  return out.empty() ? "" : cat("<h2>What happened</h2>\n", out);
}

}  // namespace automodel::report
