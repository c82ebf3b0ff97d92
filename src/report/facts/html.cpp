#include "report/facts/html.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "core/text.h"

namespace automodel::report {

namespace {

std::string printed(double value, int digits) {
  std::array<char, 400> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*g", digits, value);
  return buffer.data();
}

}  // namespace

std::string short_number(double value, int digits) {
  if (std::isnan(value)) return "nan";  // whatever its sign
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-3)) return printed(value, digits - 1);
  if (size >= 1e12) return printed(value / 1e12, digits) + "T";
  if (size >= 1e9) return printed(value / 1e9, digits) + "B";
  if (size >= 1e6) return printed(value / 1e6, digits) + "M";
  if (size >= 1e4) return printed(value / 1e3, digits) + "k";
  return printed(value, digits);
}

std::vector<std::string> short_numbers(const std::vector<double>& values) {
  constexpr int kFewest = 4, kMost = 8;
  std::vector<std::string> texts;
  for (int digits = kFewest; digits <= kMost; ++digits) {
    texts.clear();
    for (const double value : values) texts.push_back(short_number(value, digits));
    if (std::adjacent_find(texts.begin(), texts.end()) == texts.end()) break;
  }
  return texts;
}

std::string time_text(double seconds) {
  if (!std::isfinite(seconds)) return "";
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm utc{};
  ::gmtime_r(&whole, &utc);
  std::array<char, 40> buffer{};
  std::strftime(buffer.data(), buffer.size(), "%Y-%m-%d %H:%M:%S", &utc);
  return buffer.data();
}

double time_unit(double seconds) {
  if (seconds < 100) return 1;
  if (seconds < 6000) return 60;
  return seconds < 48 * 3600 ? 3600 : 86400;
}

std::string span_text(double seconds) {
  if (!std::isfinite(seconds)) return "";
  const double unit = time_unit(seconds);
  const char* name = unit == 1 ? " s" : unit == 60 ? " min" : unit == 3600 ? " h" : " d";
  return printed(seconds / unit, 3) + name;
}

}  // namespace automodel::report
