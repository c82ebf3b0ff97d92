#include "report/records/event_log.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/timestamp.h"
#include "report/records/step_table.h"

namespace automodel::report {

namespace {

// How many events of each name stay: its first and its latest; for a while twice as many.
constexpr size_t kFirst = 100, kLatest = 400;

constexpr std::string_view kNotable[] = {"lost_records", "failure",   "rollback", "skipped_update",
                                         "non_finite",   "preempted", "resume",   "advice",
                                         "warning",      "early_stop"};

RunEvent event_of(const Json& record) {
  RunEvent event;
  event.name = text_of(record, "event");
  event.seconds = seconds_of_timestamp(text_of(record, "timestamp"));
  const double step = number_of(record, "step");
  if (is_step(step)) event.step = static_cast<int64_t>(step);
  event.fields = record;
  return event;
}

/// The seconds that an event took of the run's time.
double seconds_taken(const Json& fields) {
  // Training goes on beside a save in the background, but for what it waits.
  const bool is_beside = fields.find("waited_seconds") != nullptr;
  const double seconds = number_of(fields, is_beside ? "waited_seconds" : "seconds");
  return std::isfinite(seconds) ? std::max(seconds, 0.0) : 0.0;
}

/// Adds `most` and `least` to an event of experts' loads.
void add_extremes(Json& fields) {
  const Json* layers = fields.find("layers");
  if (layers == nullptr || !layers->is_array()) return;
  double most = std::nan(""), least = std::nan("");
  for (const Json& layer : layers->as_array()) {
    const Json* shares = layer.find("shares");
    if (shares == nullptr || !shares->is_array()) continue;
    const auto num_experts = static_cast<double>(shares->size());
    for (const Json& share : shares->as_array()) {
      if (!share.is_number()) continue;
      most = std::fmax(most, share.as_double() * num_experts);
      least = std::fmin(least, share.as_double() * num_experts);
    }
  }
  if (std::isnan(most)) return;
  fields["most"] = most;
  fields["least"] = least;
}

}  // namespace

bool is_notable(std::string_view name) {
  return std::ranges::find(kNotable, name) != std::end(kNotable);
}

double number_of(const Json& record, std::string_view key) {
  const Json* value = record.find(key);
  return value != nullptr && value->is_number() ? value->as_double()
                                                : std::numeric_limits<double>::quiet_NaN();
}

std::string text_of(const Json& record, std::string_view key) {
  const Json* value = record.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

int64_t for_each_record(std::string_view lines, const std::function<void(const Json&)>& take) {
  int64_t num_others = 0;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.empty()) continue;
    try {
      const Json record = Json::parse(line, "record");
      record.is_object() ? take(record) : static_cast<void>(++num_others);
    } catch (const InputError&) {
      ++num_others;  // cut, or of another form
    }
  }
  return num_others;
}

void EventLog::add(std::string_view lines) {
  num_unread_ += for_each_record(lines, [this](const Json& record) { add(event_of(record)); });
}

void EventLog::add(RunEvent event) {
  if (event.name == "expert_load" && event.fields.is_object()) {
    const auto before = std::find_if(events_.rbegin(), events_.rend(), [](const RunEvent& other) {
      return other.name == "expert_load";
    });
    if (before != events_.rend()) before->fields.erase("layers");
    add_extremes(event.fields);
  }
  EventTotal& total = totals_[event.name];
  ++total.number;
  total.seconds += seconds_taken(event.fields);
  const size_t num_kept = ++num_kept_[event.name];
  event.number = count_++;
  events_.push_back(std::move(event));
  if (num_kept > 2 * (kFirst + kLatest)) drop_middle();
}

void EventLog::drop_middle() {
  std::map<std::string, size_t, std::less<>> seen;
  std::erase_if(events_, [&](const RunEvent& event) {
    const size_t number = seen[event.name]++;
    return number >= kFirst && number + kLatest < num_kept_[event.name];
  });
  for (auto& [name, count] : num_kept_) count = std::min(count, kFirst + kLatest);
}

int64_t EventLog::count(std::string_view name) const {
  const auto found = totals_.find(name);
  return found == totals_.end() ? 0 : found->second.number;
}

const RunEvent* EventLog::latest(std::string_view name) const {
  const auto found = std::find_if(events_.rbegin(), events_.rend(),
                                  [&](const RunEvent& event) { return event.name == name; });
  return found == events_.rend() ? nullptr : &*found;
}

RunState state_of(const EventLog& events) {
  RunState state = RunState::kUnknown;
  for (const RunEvent& event : events) {
    if (event.name == "end") state = RunState::kDone;
    if (event.name == "preempted") state = RunState::kPreempted;
    if (event.name == "failure") {
      constexpr double kInterrupted = 128 + 2;  // by SIGINT, which is somebody's Ctrl+C
      const bool is_wanted = number_of(event.fields, "status") == kInterrupted;
      state = is_wanted ? RunState::kInterrupted : RunState::kFailed;
    }
    if (event.name == "start") state = RunState::kUnknown;
  }
  return state;
}

}  // namespace automodel::report
