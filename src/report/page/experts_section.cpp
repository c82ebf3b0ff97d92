#include "report/page/experts_section.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/html_text.h"
#include "core/text.h"
#include "report/facts/html.h"
#include "report/page/chart.h"
#include "report/page/html_table.h"

namespace automodel::report {

namespace {

// Beyond these, experts that are neighbours share a cell, and layers are left out of the picture.
constexpr size_t kMostColumns = 256, kMostLayers = 128;

/// A load from which on a cell has a colour: far below an even share, near it, far above.
struct Level {
  double from;
  const char* css;
  const char* words;
};
constexpr std::array<Level, 7> kLevels = {{{0, "low3", "below 0.05"},
                                           {0.05, "low2", "0.05 to 0.25"},
                                           {0.25, "low1", "0.25 to 0.67"},
                                           {0.67, "even", "0.67 to 1.5"},
                                           {1.5, "high1", "1.5 to 3"},
                                           {3, "high2", "3 to 6"},
                                           {6, "high3", "6 and more"}}};

size_t level_of(double load) {
  size_t level = 0;
  while (level + 1 < kLevels.size() && load >= kLevels[level + 1].from) ++level;
  return level;
}

/// The load that is furthest from even among experts that share a cell.
double load_of_cell(const std::vector<double>& loads, size_t cell, size_t num_cells) {
  const size_t begin = cell * loads.size() / num_cells, end = (cell + 1) * loads.size() / num_cells;
  const auto distance = [](double load) { return std::abs(std::log(std::max(load, 1e-6))); };
  double furthest = 1;
  for (size_t i = begin; i < end; ++i) {
    if (distance(loads[i]) >= distance(furthest)) furthest = loads[i];
  }
  return furthest;
}

/// A row a layer, a column an expert; a path for each level, so that many cells stay small.
std::string heat_map(const std::vector<LayerLoad>& layers) {
  constexpr int kLeft = 58, kWidth = 700, kTop = 4, kMostHeight = 360, kMostCell = 22;
  size_t num_cells = 1;
  for (const LayerLoad& layer : layers) num_cells = std::max(num_cells, layer.loads.size());
  num_cells = std::min(num_cells, kMostColumns);
  const size_t num_rows = std::min(layers.size(), kMostLayers);
  const int row_height = std::clamp(kMostHeight / static_cast<int>(num_rows), 3, kMostCell);
  std::array<std::string, kLevels.size()> paths;
  std::string labels;
  const size_t every = num_rows * 19 / kMostHeight + 1;  // so that labels do not touch
  for (size_t row = 0; row < num_rows; ++row) {
    const LayerLoad& layer = layers[row];
    const size_t of_row = std::min(num_cells, layer.loads.size());
    const int y = kTop + static_cast<int>(row) * row_height;
    for (size_t cell = 0; cell < of_row; ++cell) {
      const auto place = [&](size_t at) {
        return kLeft + static_cast<int>(static_cast<size_t>(kWidth) * at / of_row);
      };
      const int width = place(cell + 1) - place(cell);
      paths[level_of(load_of_cell(layer.loads, cell, of_row))] +=
          cat("M", place(cell), " ", y, "h", width, "v", row_height, "h-", width, "z");
    }
    if (row % every != 0) continue;
    labels += cat("<text x=\"", kLeft - 6, "\" y=\"", y + row_height / 2 + 4,
                  "\" text-anchor=\"end\">", layer.layer, "</text>");
  }
  std::string out = cat("<svg class=\"heat\" viewBox=\"0 0 770 ",
                        kTop + static_cast<int>(num_rows) * row_height + 24,
                        "\" role=\"img\" aria-label=\"experts' loads by layer, whose extremes the "
                        "table below has\">");
  for (size_t level = 0; level < kLevels.size(); ++level) {
    if (paths[level].empty()) continue;
    out += cat("<path class=\"", kLevels[level].css, "\" d=\"", paths[level], "\"/>");
  }
  return cat(out, "<g aria-hidden=\"true\">", labels, "<text x=\"", kLeft, "\" y=\"",
             kTop + static_cast<int>(num_rows) * row_height + 16,
             "\">layers down, experts across</text></g></svg>");
}

std::string levels_legend() {
  std::string out = "<ul class=\"legend\">";
  for (const Level& level : kLevels) {
    out += cat("<li><svg class=\"heat\" viewBox=\"0 0 28 10\" aria-hidden=\"true\"><path class=\"",
               level.css, "\" d=\"M0 0h28v10h-28z\"/></svg>", level.words, "</li>");
  }
  return out + "</ul>\n<p class=\"note\">What an expert gets, by an even share.</p>\n";
}

std::string layers_table(const std::vector<LayerLoad>& layers) {
  std::string rows;
  for (const LayerLoad& layer : layers) {
    const auto [least, most] = std::ranges::minmax_element(layer.loads);
    const auto number = [&](auto found) { return cat(found - layer.loads.begin()); };
    const auto count = std::ranges::count_if(layer.loads, [](double load) { return load < 0.05; });
    rows += number_row(cat(layer.layer), {format_fixed(*most, 2), number(most),
                                          format_fixed(*least, 2), number(least), cat(count)});
  }
  return cat("<details><summary>layers as numbers</summary>\n",
             number_table({"layer", "most loaded, of an even share", "expert", "least loaded",
                           "expert", "experts below 0.05"},
                          rows),
             "</details>\n");
}

/// The extremes of all layers over the steps.
std::string over_time(const RecordedRun& run) {
  constexpr int64_t kColumns = 300;
  std::vector<double> steps, most, least;
  for (const RunEvent& event : run.events) {
    const double high = number_of(event.fields, "most"), low = number_of(event.fields, "least");
    if (event.name != "expert_load" || !event.step || !std::isfinite(high)) continue;
    steps.push_back(static_cast<double>(*event.step));
    most.push_back(high);
    least.push_back(low);
  }
  if (steps.size() < 2) return "";
  const Range x = range_of(steps);
  std::vector<ChartCurve> curves;
  curves.push_back({"most loaded", 1, make_curve(steps, most, x, kColumns, 1), {}, {}});
  curves.push_back({"least loaded", 0, make_curve(steps, least, x, kColumns, 1), {}, {}});
  Range y = range_of(most);
  for (const double value : least) y.add(value);
  y.add(1);
  return cat(
      "<p class=\"caption\"><span class=\"c1\">&#9632;</span> most and <span "
      "class=\"c0\">&#9632;</span> least loaded expert of any layer, of an even share</p>",
      "<div class=\"over-time\">",
      chart_svg(curves, {"load of an expert", "step", false, false, false, x, y}), "</div>");
}

std::string experts_of(const RecordedRun& run) {
  const RunEvent* event = run.events.latest("expert_load");
  if (event == nullptr) return "";
  const std::vector<LayerLoad> layers = layer_loads(*event);
  if (layers.empty()) return "";
  const std::string step = event->step ? cat(" at step ", *event->step) : "";
  return cat("<h3>", html_text(run.name), "</h3>\n<p class=\"caption\">loads", step, "</p>",
             heat_map(layers), levels_legend(), over_time(run), layers_table(layers));
}

}  // namespace

std::vector<LayerLoad> layer_loads(const RunEvent& event) {
  std::vector<LayerLoad> all;
  const Json* layers = event.fields.find("layers");
  if (layers == nullptr || !layers->is_array()) return all;
  for (const Json& layer : layers->as_array()) {
    const Json* shares = layer.find("shares");
    if (shares == nullptr || !shares->is_array()) continue;
    const double number = number_of(layer, "layer");
    LayerLoad load;
    load.layer = is_step(number) ? static_cast<int64_t>(number) : static_cast<int64_t>(all.size());
    for (const Json& share : shares->as_array()) {
      const double value = share.is_number() ? share.as_double() : 0;
      const bool is_share = value >= 0 && std::isfinite(value);
      load.loads.push_back(is_share ? value * static_cast<double>(shares->size()) : 0);
    }
    if (!load.loads.empty()) all.push_back(std::move(load));
  }
  return all;
}

std::string experts_section(const RunViews& runs) {
  std::string out;
  for (const RecordedRun& run : runs) out += experts_of(run);
  return out.empty() ? "" : cat("<h2>Load of experts</h2>\n", out);
}

}  // namespace automodel::report
