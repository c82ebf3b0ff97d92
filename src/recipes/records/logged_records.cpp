#include "recipes/records/logged_records.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/timestamp.h"
#include "recipes/records/run_log.h"

namespace automodel::recipes {

namespace {

using Records = std::vector<std::shared_ptr<const trackers::Record>>;

/// The object of a line; null for another text.
Json object_of(std::string_view line) {
  try {
    Json value = Json::parse(line, "record");
    if (value.is_object()) return value;
  } catch (const InputError&) {
    // Half a line of a process that was killed.
  }
  return nullptr;
}

/// Adds the records of a file, from its end to the first step that is not wanted.
void add_records(const std::string& path, const std::string& set, const LoggedSteps& steps,
                 Records& records) {
  if (!path_exists(path)) return;
  const std::string text = read_file(path);
  std::string_view rest = text;
  while (!rest.empty()) {
    if (rest.ends_with('\n')) rest.remove_suffix(1);
    const size_t end_before = rest.rfind('\n');
    const size_t begin = end_before == std::string_view::npos ? 0 : end_before + 1;
    const Json line = object_of(rest.substr(begin));
    rest = rest.substr(0, begin);
    const Json* number = line.is_object() ? line.find("step") : nullptr;
    if (number == nullptr || !number->is_int()) continue;
    const int64_t step = number->as_int();
    if (step <= steps.last_step) return;
    const bool is_wanted =
        step < steps.first_step && (!set.empty() || step % steps.every_steps == 0);
    if (!is_wanted) continue;
    trackers::Record record = trackers::record_of(line, set);
    const double seconds = seconds_of_timestamp(line.get("timestamp", ""));
    if (std::isfinite(seconds)) record.unix_seconds = seconds;
    records.push_back(std::make_shared<const trackers::Record>(std::move(record)));
  }
}

}  // namespace

Records logged_records(const std::string& folder, const LoggedSteps& steps) {
  Records records;
  add_records(path_join(folder, kTrainingLog), "", steps, records);
  for (const std::string& set : steps.validation_sets) {
    add_records(path_join(folder, log_of(set)), set, steps, records);
  }
  std::ranges::stable_sort(records, [](const auto& a, const auto& b) {
    return a->step != b->step ? a->step < b->step : a->set < b->set;
  });
  return records;
}

}  // namespace automodel::recipes
