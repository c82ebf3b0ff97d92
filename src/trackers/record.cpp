#include "core/text.h"
#include "core/timestamp.h"
#include "trackers/tracker.h"

namespace automodel::trackers {

size_t Record::num_numbers() const {
  size_t num = values.size();
  for (const auto& [tag, histogram] : histograms) num += 2 * histogram.buckets.size();
  return num;
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
