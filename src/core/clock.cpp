#include "core/clock.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>

namespace automodel {

double monotonic_seconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

double seconds_since_process_start() {
  // Field 22 of /proc/self/stat is the start time in clock ticks since boot; the command name in
  // field 2 may hold spaces, so counting starts behind its closing parenthesis.
  std::ifstream stat("/proc/self/stat");
  std::string line;
  std::getline(stat, line);
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks = 0;
  fields >> ticks;
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
