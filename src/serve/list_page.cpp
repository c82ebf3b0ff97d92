#include "serve/list_page.h"

#include <algorithm>
#include <cmath>

#include "core/html_text.h"
#include "core/text.h"
#include "core/utf8.h"
#include "report/facts/html.h"
#include "report/page/style.h"
#include "report/records/curve.h"
#include "serve/access.h"

namespace automodel::serve {

namespace {

using report::Metric;
using report::short_number;

constexpr const char* kListStyle = R"css(
h1{margin-bottom:.2rem}
.runs{width:100%;margin-top:1rem;font-size:.92rem}
.runs th,.runs td{padding:.45rem .8rem .45rem 0;vertical-align:middle;min-width:0}
.runs tbody th{color:var(--text);font-weight:600;max-width:26rem}
.runs thead th{color:var(--soft);font-weight:400}
.runs thead th.number{text-align:right}
.runs tbody tr:hover{background:var(--panel)}
.runs a{color:inherit;text-decoration-color:var(--soft);text-underline-offset:.2em}
.runs .what{color:var(--soft);font-weight:400;font-size:.85rem;display:block}
.runs .failure{color:var(--bad)}.runs .alert{color:var(--c4)}
.runs td.choice{width:1.8rem;padding-right:.3rem}.runs input{width:1.1rem;height:1.1rem;margin:0;vertical-align:middle}
.compare button{font:inherit;padding:.25rem .9rem;border:1px solid var(--line);border-radius:.4rem;background:var(--panel);
color:var(--text);cursor:pointer}
.runs td.number,.runs td.when{white-space:nowrap}
.status{display:inline-block;border:1px solid currentColor;border-radius:1rem;padding:0 .6rem;font-size:.82rem;
white-space:nowrap}
.status.running{color:var(--c0);background:color-mix(in srgb,currentColor 12%,transparent)}
.status.finished{color:var(--c2)}.status.stopped{color:var(--c4)}.status.failed{color:var(--bad)}
.status.stale{color:var(--soft);border-style:dashed}
.runs svg{width:7rem;height:1.6rem;overflow:visible}
.runs svg.steps{height:.3rem;margin-top:.15rem;margin-left:auto;background:var(--line);border-radius:.2rem}
.runs svg.steps rect{fill:var(--c0)}
.runs svg.loss path{stroke:var(--c0);stroke-width:1.6;stroke-linejoin:round;vector-effect:non-scaling-stroke}
.counts{display:flex;flex-wrap:wrap;gap:.4rem 1rem;margin:0;padding:0;list-style:none;color:var(--soft)}
@media(max-width:48rem){.runs,.runs tbody{display:block}.runs thead{display:none}
.runs tr{display:grid;grid-template-columns:1.8rem 1fr auto;gap:.2rem .6rem;padding:.7rem 0;
border-bottom:1px solid var(--line)}
.runs th,.runs td{border:0;padding:0;text-align:left}.runs td.choice{grid-column:1;grid-row:1}
.runs tbody th{grid-column:2/4;grid-row:1;max-width:none}.runs th a{display:inline-block;max-width:calc(100% - 6rem)}
.runs td.state{grid-column:3;grid-row:1;justify-self:end}.runs td.number{text-align:left;grid-row:2}
.runs td.number[data-label=steps]{grid-column:2}.runs td.number[data-label=loss]{grid-column:3;justify-self:end}
.runs td.curve{grid-column:3;grid-row:3;align-self:end}.runs td.when{grid-column:2;grid-row:3;color:var(--soft)}
.runs td[data-label]::before{content:attr(data-label) " ";color:var(--soft)}.runs svg.steps{margin-left:0}}
)css";

std::string status_mark(const RunSummary& run) {
  const char* name = status_name(run.status);
  return cat("<span class=\"status ", name, "\">", name, "</span>");
}

/// The number of steps, and how much of all that is.
std::string steps_cell(const RunSummary& run) {
  const int64_t done = run.step ? *run.step + 1 : 0;
  if (!run.max_steps) return cat(done);
  const double share =
      *run.max_steps > 0 ? static_cast<double>(done) / static_cast<double>(*run.max_steps) : 0;
  return cat(done, " of ", *run.max_steps,
             "<svg class=\"steps\" viewBox=\"0 0 100 4\" preserveAspectRatio=\"none\" "
             "aria-hidden=\"true\"><rect height=\"4\" width=\"",
             format_fixed(std::clamp(share, 0.0, 1.0) * 100, 1), "\"/></svg>");
}

/// The losses of the last steps as a small line.
std::string loss_curve(const RunSummary& run) {
  constexpr int64_t kColumns = 60;
  constexpr int kWidth = 100, kHeight = 20;
  const std::vector<double>& losses = run.latest_losses;
  std::vector<double> places;
  for (size_t i = 0; i < losses.size(); ++i) places.push_back(static_cast<double>(i));
  const report::Range x = report::range_of(places), y = report::range_of(losses);
  if (y.is_empty || y.size() <= 0) return "";
  std::string path;
  for (const report::Column& column : report::make_curve(places, losses, x, kColumns, 1).columns) {
    const double at = column.x / x.size() * kWidth;
    for (const double value : {column.low, column.high}) {
      const double height = kHeight - (value - y.low) / y.size() * kHeight;
      path += cat(path.empty() ? "M" : "L", format_fixed(at, 1), " ", format_fixed(height, 1));
      if (column.low == column.high) break;
    }
  }
  return cat(
      "<svg class=\"loss\" viewBox=\"0 0 100 20\" preserveAspectRatio=\"none\" role=\"img\" "
      "aria-label=\"loss of the last ",
      losses.size(), " steps\"><path d=\"", path, "\"/></svg>");
}

/// "now", "12 min ago", "3 h ago", "5 d ago".
std::string age_text(double seconds) {
  constexpr double kMinute = 60, kHour = 3600, kDay = 86400;
  const auto ago = [&](double unit, const char* name) {
    return cat(static_cast<int64_t>(seconds / unit), name, " ago");
  };
  if (!(seconds >= kMinute)) return "now";
  if (seconds < kHour) return ago(kMinute, " min");
  return seconds < 2 * kDay ? ago(kHour, " h") : ago(kDay, " d");
}

/// A box by which a run is chosen for a page with others. A path that is not UTF-8 has none: a form
/// could not send it.
std::string choice_cell(const RunSummary& run) {
  const bool is_sendable = run.id.empty() || run.name == run.id;
  if (!is_sendable) return "<td class=\"choice\"></td>";
  return cat("<td class=\"choice\"><input type=\"checkbox\" name=\"run\" value=\"",
             html_text(run.id), "\" aria-label=\"compare ", html_text(run.name), "\"></td>");
}

/// What is said below a run's name: how it failed, else its latest alert; what its format is.
std::string notes_of(const RunSummary& run) {
  constexpr size_t kMost = 240;
  const auto line = [&](std::string_view css, const std::string& text) {
    return text.empty() ? ""
                        : cat("<span class=\"what ", css, "\">", html_text(shortened(text, kMost)),
                              "</span>");
  };
  std::string out = line("failure", run.detail);
  if (run.detail.empty() && run.alert) {
    out += line("alert", cat("! ", run.alert->event, ": ", run.alert->text));
  }
  return out + line("alert", run.format_note.empty() ? "" : cat("! ", run.format_note));
}

std::string when_cell(const RunSummary& run, double now) {
  const bool has_eta = run.status == RunStatus::kRunning && std::isfinite(run.seconds_left);
  return cat("<td class=\"when\"><time title=\"", report::time_text(run.written_seconds), " UTC\">",
             age_text(now - run.written_seconds), "</time>",
             has_eta ? cat("<span class=\"what\">about ", report::span_text(run.seconds_left),
                           " left</span>")
                     : "",
             "</td>");
}

std::string row(const RunSummary& run, double now) {
  std::vector<std::string> what;
  for (const std::string& text : {run.task, run.model}) {
    if (!text.empty()) what.push_back(text);
  }
  const bool has_loss = run.step && !std::isnan(run.last_of(Metric::kLoss));
  const std::string loss = run.step ? short_number(run.last_of(Metric::kLoss)) : "";
  return cat(
      "<tr>", choice_cell(run), "<th scope=\"row\"><a href=\"runs/", percent_encoded(run.id), "\">",
      html_text(run.name), "</a><span class=\"what\">", html_text(join(what, " \xC2\xB7 ")),
      "</span>", notes_of(run), "</th><td class=\"state\">", status_mark(run),
      "</td><td class=\"number\" data-label=\"steps\">", steps_cell(run), "</td><td class=\"number",
      run.step && !has_loss ? " failure" : "", "\" data-label=\"loss\">", loss,
      "</td><td class=\"curve\">", loss_curve(run), "</td>", when_cell(run, now), "</tr>\n");
}

std::string counts(const RunList& list) {
  std::string out = cat("<ul class=\"counts\"><li>", list.runs.size(),
                        list.runs.size() == 1 ? " run" : " runs", "</li>");
  for (const RunStatus status : kStatuses) {
    const auto count = std::ranges::count(list.runs, status, &RunSummary::status);
    if (count > 0) out += cat("<li>", count, " ", status_name(status), "</li>");
  }
  return out + "</ul>\n";
}

std::string notes(const RunList& list) {
  std::string out;
  if (list.runs.empty()) {
    out +=
        "<p>No run yet: a run appears when it has written its run.json or training.jsonl "
        "here.</p>\n";
  }
  if (list.num_linked > 0) {
    out +=
        cat("<p class=\"note\">", list.num_linked, list.num_linked == 1 ? " run is" : " runs are",
            " left out: files that would be read are links or no plain files.</p>\n");
  }
  if (list.has_reached_limit) {
    out +=
        "<p class=\"note\">There is more below this folder than is looked at; start the server "
        "on a folder nearer to the runs.</p>\n";
  }
  return out;
}

}  // namespace

const std::string& list_style() {
  static const std::string style = cat(report::kStyle, kListStyle);
  return style;
}

std::string list_page(const RunList& list, const report::LivePage& live) {
  const std::string title = html_text(list.root_name);
  std::string rows;
  for (const RunSummary& run : list.runs) rows += row(run, list.now);
  const std::string table =
      rows.empty()
          ? ""
          : cat("<form action=\"compare\" method=\"get\">\n<table "
                "class=\"runs\"><thead><tr><td></td><th scope=\"col\">run</th><th "
                "scope=\"col\"></th><th scope=\"col\" class=\"number\">steps</th><th "
                "scope=\"col\" class=\"number\">loss</th><th scope=\"col\"></th><th "
                "scope=\"col\">last written</th></tr></thead><tbody>\n",
                rows,
                "</tbody></table>\n<p class=\"compare\"><button>Show the chosen runs beside "
                "each other</button> <span class=\"note\">",
                kMostCompared, " at most</span></p></form>\n");
  return cat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
      "name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>Runs of ",
      title, "</title><style>", list_style(), "</style>", report::live_head(live), "</head>",
      report::live_top(live), "<h1>Runs of ", title, "</h1>\n<main>\n", counts(list), notes(list),
      table, "</main>", report::live_end(), "</body></html>\n");
}

}  // namespace automodel::serve
