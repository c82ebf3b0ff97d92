#include <chrono>
#include <cstdio>
#include <ctime>

#include "core/text.h"
#include "trackers/tracker.h"

namespace automodel::trackers {

size_t Record::num_numbers() const {
  size_t num = values.size();
  for (const auto& [tag, histogram] : histograms) num += 2 * histogram.buckets.size();
  return num;
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double unix_seconds_of(const std::string& timestamp) {
  std::tm time{};
  int length = 0;
  double seconds = 0;
  const int count =
      std::sscanf(timestamp.c_str(), "%4d-%2d-%2dT%2d:%2d:%lfZ%n", &time.tm_year, &time.tm_mon,
                  &time.tm_mday, &time.tm_hour, &time.tm_min, &seconds, &length);
  if (count != 6 || static_cast<size_t>(length) != timestamp.size()) return unix_seconds();
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  return static_cast<double>(::timegm(&time)) + seconds;
}

std::string metric_name(const Record& record, const std::string& name) {
  if (record.set.empty()) return name;
  if (record.set != "default") return cat("val_", record.set, "/", name);
  return name.starts_with("val_") ? name : "val_" + name;
}

Record record_of(const Json& record, std::string set) {
  Record made;
  made.set = std::move(set);
  made.step = record.get("step", 0);
  made.unix_seconds = unix_seconds();
  made.values.reserve(record.size());
  for (const auto& [key, value] : record.as_object()) {
    if (value.is_number() && key != "step") made.values.emplace_back(key, value.as_double());
  }
  return made;
}

}  // namespace automodel::trackers
