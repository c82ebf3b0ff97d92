#include "core/timestamp.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>

namespace automodel {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double seconds_of_timestamp(std::string_view timestamp) {
  // 2026-08-01T12:34:56.789Z
  constexpr size_t kSize = 24;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (timestamp.size() != kSize || timestamp.back() != 'Z') return kNone;
  const auto number = [&](size_t at, size_t size) {
    int value = -1;
    const char* begin = timestamp.data() + at;
    const auto [end, error] = std::from_chars(begin, begin + size, value);
    return error == std::errc() && end == begin + size ? value : -1;
  };
  const int year = number(0, 4), month = number(5, 2), day = number(8, 2);
  const int hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  const int millis = number(20, 3);
  if (std::min({year, month, day, hour, minute, second, millis}) < 0) return kNone;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return kNone;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400.0 + hour * 3600.0 + minute * 60.0 + second +
         millis / 1000.0;
}

}  // namespace automodel
