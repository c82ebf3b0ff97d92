#include "recipes/commands/inspect_report.h"

#include "core/html_text.h"
#include "core/text.h"

namespace automodel::recipes {

namespace {

constexpr const char* kStyle =
    "body{font-family:sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f4f4f4;padding:1rem}"
    "mark{background:#b7e4b7}h2{font-size:1rem;margin-bottom:0}";

std::string heading_of(const InspectedSample& sample) {
  const std::string cut = sample.num_cut == 0 ? "" : cat(", ", sample.num_cut, " more are cut off");
  return cat(sample.origin, ", ", sample.num_tokens, " tokens", cut);
}

}  // namespace

std::string to_text(const InspectReport& report, const std::string& begin, const std::string& end) {
  std::string out;
  for (const std::string& warning : report.warnings) out += cat("warning: ", warning, "\n");
  for (const InspectedSample& sample : report.samples) {
    out += cat("--- ", heading_of(sample), "\n");
    for (const TextRun& run : sample.runs) out += run.counts ? cat(begin, run.text, end) : run.text;
    out += "\n";
  }
  out += "---\n";
  for (const std::string& line : report.totals) out += cat(line, "\n");
  return out;
}

std::string to_html(const InspectReport& report) {
  const std::string title = html_text(cat("Samples of ", report.recipe));
  std::string out = cat("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>",
                        title, "</title><style>", kStyle, "</style></head><body>\n<h1>", title,
                        "</h1>\n<p>What counts in the loss is <mark>marked</mark>.</p>\n<ul>\n");
  for (const std::string& warning : report.warnings) {
    out += cat("<li><strong>warning:</strong> ", html_text(warning), "</li>\n");
  }
  for (const std::string& line : report.totals) out += cat("<li>", html_text(line), "</li>\n");
  out += "</ul>\n";
  for (const InspectedSample& sample : report.samples) {
    out += cat("<h2>", html_text(heading_of(sample)), "</h2>\n<pre>");
    for (const TextRun& run : sample.runs) {
      out += run.counts ? cat("<mark>", html_text(run.text), "</mark>") : html_text(run.text);
    }
    out += "</pre>\n";
  }
  return out + "</body></html>\n";
}

}  // namespace automodel::recipes
