#include "report/watch/braille.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "core/text.h"
#include "core/utf8.h"

namespace automodel::report {

namespace {

constexpr int kDotsWide = 2, kDotsHigh = 4;
constexpr char32_t kEmptyBraille = 0x2800;

/// The bit of a dot in U+2800, by its place from the top left.
constexpr std::array<std::array<uint8_t, kDotsWide>, kDotsHigh> kBits = {
    {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};

struct Cell {
  uint8_t dots = 0;
  size_t color = 0;
};

/// Dots over the whole chart, from the top left.
class Canvas final {
 public:
  explicit Canvas(const DotChart& chart)
      : chart_(chart),
        cells_(static_cast<size_t>(chart.width) * static_cast<size_t>(chart.height)) {}

  int x(double value) const {
    return dot((value - chart_.x.low) / std::max(chart_.x.size(), 1e-300),
               chart_.width * kDotsWide);
  }
  int y(double value) const {
    const double share = chart_.y.size() > 0 ? (value - chart_.y.low) / chart_.y.size() : 0.5;
    const int num_dots = chart_.height * kDotsHigh;
    return num_dots - 1 - dot(share, num_dots);
  }

  /// Dots in a column from one height to another.
  void draw(int x, int from, int to, size_t color) {
    for (int y = std::min(from, to); y <= std::max(from, to); ++y) {
      Cell& cell = cells_[static_cast<size_t>(y / kDotsHigh * chart_.width + x / kDotsWide)];
      cell.dots |= kBits[static_cast<size_t>(y % kDotsHigh)][static_cast<size_t>(x % kDotsWide)];
      cell.color = color;
    }
  }

  std::string line(int number) const {
    std::string out, run;
    size_t color = 0;
    const auto end_run = [&] {
      out += chart_.has_color && !run.empty() ? in_color(run, color) : run;
      run.clear();
    };
    for (int i = 0; i < chart_.width; ++i) {
      const Cell& cell = cells_[static_cast<size_t>(number * chart_.width + i)];
      if (cell.color != color && cell.dots != 0) {
        end_run();
        color = cell.color;
      }
      append_utf8(run, kEmptyBraille + cell.dots);
    }
    end_run();
    return out;
  }

 private:
  static int dot(double share, int num_dots) {
    return static_cast<int>(std::clamp(share * num_dots, 0.0, num_dots - 1.0));
  }

  const DotChart& chart_;
  std::vector<Cell> cells_;
};

}  // namespace

std::vector<std::string> draw_dots(const std::vector<DotCurve>& curves, const DotChart& chart) {
  Canvas canvas(chart);
  for (const DotCurve& run : curves) {
    int last_x = -2, last_y = 0;  // -2: no neighbour of the first column
    for (const Column& column : run.curve->columns) {
      const int x = canvas.x(column.x), low = canvas.y(column.low), high = canvas.y(column.high);
      if (last_x == x - 1 && last_y > low + 1) canvas.draw(x, low, last_y - 1, run.color);
      if (last_x == x - 1 && last_y < high - 1) canvas.draw(x, last_y + 1, high, run.color);
      canvas.draw(x, low, high, run.color);
      last_x = x;
      last_y = (low + high) / 2;
    }
  }
  std::vector<std::string> lines;
  for (int i = 0; i < chart.height; ++i) lines.push_back(canvas.line(i));
  return lines;
}

std::string in_color(const std::string& text, size_t color) {
  constexpr std::array<int, 6> kColors = {36, 33, 32, 35, 34, 31};
  return cat("\x1b[", kColors[color % kColors.size()], "m", text, "\x1b[0m");
}

}  // namespace automodel::report
