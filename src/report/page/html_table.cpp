#include "report/page/html_table.h"

#include <cmath>

#include "core/html_text.h"
#include "core/text.h"
#include "report/facts/html.h"

namespace automodel::report {

namespace {

std::string row_of(const std::string& key, const std::vector<std::string>& values,
                   std::string_view classes) {
  std::string out = cat("<tr><th scope=\"row\">", html_text(key), "</th>");
  for (const std::string& value : values) {
    const bool is_failure = key == "state" && value.starts_with("failed");
    out += cat("<td", is_failure ? " class=\"failure\"" : classes, ">", html_text(value), "</td>");
  }
  return out + "</tr>\n";
}

}  // namespace

std::string number_table(const std::vector<std::string>& head, std::string_view rows) {
  return wide_table(head, rows, "numbers");
}

std::string wide_table(const std::vector<std::string>& head, std::string_view rows,
                       std::string_view css) {
  std::string out = cat("<div class=\"wide\"><table",
                        css.empty() ? "" : cat(" class=\"", css, "\""), "><thead><tr>");
  for (const std::string& cell : head) out += cat("<th scope=\"col\">", html_text(cell), "</th>");
  return cat(out, "</tr></thead>\n<tbody>", rows, "</tbody></table></div>\n");
}

std::string row(const std::string& key, const std::vector<std::string>& values) {
  return row_of(key, values, "");
}

std::string number_row(const std::string& key, const std::vector<std::string>& values) {
  return row_of(key, values, " class=\"number\"");
}

std::vector<std::string> with_names(std::string first, const RunViews& runs) {
  std::vector<std::string> cells = {std::move(first)};
  for (const RecordedRun& run : runs) cells.push_back(run.name);
  return cells;
}

std::string color_of(size_t run) {
  return cat("c", run % 8, run >= 8 ? " dashed" : "");
}

std::string percent_text(double share) {
  return std::isfinite(share) ? cat(format_fixed(100 * share, 1), "%") : "";
}

std::string share_bar(const std::vector<BarPart>& parts) {
  constexpr double kWidth = 1000;  // of the bar, in its own units
  double at = 0;
  std::string bar;
  for (const BarPart& part : parts) {
    if (!(part.share > 0)) continue;
    const double width = kWidth * part.share;
    bar += cat("<rect class=\"", part.color, "\" x=\"", format_fixed(at, 1), "\" width=\"",
               format_fixed(width, 1), "\" height=\"20\"/>");
    at += width;
  }
  return cat(
      "<svg class=\"bar\" viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" "
      "aria-hidden=\"true\">",
      bar, "</svg>");
}

}  // namespace automodel::report
