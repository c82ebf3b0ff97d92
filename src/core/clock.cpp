#include "core/clock.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "core/process.h"
#include "core/text.h"

namespace automodel {

double monotonic_seconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

double seconds_since_process_start() {
  constexpr size_t kStartTime = 19;  // in clock ticks since boot
  const auto ticks = static_cast<double>(parse_int(process_fields("self").at(kStartTime)).value());
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
         ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

namespace {
std::string format_time(const std::tm& time, const char* pattern) {
  std::array<char, 64> buffer;
  const size_t size = std::strftime(buffer.data(), buffer.size(), pattern, &time);
  return std::string(buffer.data(), size);
}
}  // namespace

std::string utc_timestamp() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  std::array<char, 16> millis;
  std::snprintf(millis.data(), millis.size(), ".%03dZ", static_cast<int>(now.tv_nsec / 1000000));
  return format_time(utc, "%Y-%m-%dT%H:%M:%S") + millis.data();
}

}  // namespace automodel
