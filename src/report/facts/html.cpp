#include "report/facts/html.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "core/text.h"

namespace automodel::report {

namespace {

std::string printed(const char* format, double value) {
  std::array<char, 40> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

}  // namespace

std::string short_number(double value) {
  if (!std::isfinite(value)) return printed("%g", value);
  const double size = std::abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-3)) return printed("%.3g", value);
  if (size >= 1e6) return printed("%.4gM", value / 1e6);
  if (size >= 1e4) return printed("%.4gk", value / 1e3);
  return printed("%.4g", value);
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
  return printed("%.3g", seconds / unit) + name;
}

}  // namespace automodel::report
