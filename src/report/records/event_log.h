#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace automodel::report {

/// What happened to a run.
struct RunEvent {
  std::string name;
  double seconds = 0;           ///< since 1970, UTC; NaN when it is not told
  std::optional<int64_t> step;  ///< where it has one
  Json fields;
  int64_t number = 0;  ///< how many were before it
};

/// Whether an event is one that somebody who watches would want to be told of: failure, rollback,
/// skipped_update, non_finite, preempted, resume, advice, warning, lost_records.
bool is_notable(std::string_view name);

/// All events of one name: how many, and the seconds that they took.
struct EventTotal {
  int64_t number = 0;
  double seconds = 0;
};

/// The events of a run in their order: of each name the first and the latest ones, and how many
/// there were. Of experts' loads all but the latest are kept as their extremes, fields `most` and
/// `least`: what the most and the least loaded expert of any layer gets, by an even share.
class EventLog final {
 public:
  /// Adds the events of whole lines of events.jsonl.
  void add(std::string_view lines);
  /// Adds an event as its line has it.
  void add(RunEvent event);

  const std::vector<RunEvent>& events() const { return events_; }
  const std::map<std::string, EventTotal, std::less<>>& totals() const { return totals_; }
  int64_t num_unread() const { return num_unread_; }

  auto begin() const { return events_.begin(); }
  auto end() const { return events_.end(); }
  bool empty() const { return events_.empty(); }
  /// How many there were of a name, kept or not.
  int64_t count(std::string_view name) const;
  int64_t count() const { return count_; }
  /// The latest of a name; null when there is none.
  const RunEvent* latest(std::string_view name) const;

 private:
  void drop_middle();

  std::vector<RunEvent> events_;
  std::map<std::string, EventTotal, std::less<>> totals_;
  std::map<std::string, size_t, std::less<>> num_kept_;
  int64_t count_ = 0, num_unread_ = 0;
};

/// How a run has ended, if it has.
enum class RunState { kUnknown, kDone, kPreempted, kInterrupted, kFailed };

/// What the events since the last start say.
RunState state_of(const EventLog& events);

/// Calls `take` with every object of lines of JSON; returns how many lines are none.
int64_t for_each_record(std::string_view lines, const std::function<void(const Json&)>& take);

/// The number of a member; NaN when there is none.
double number_of(const Json& record, std::string_view key);
/// The text of a member; "" when there is none.
std::string text_of(const Json& record, std::string_view key);

}  // namespace automodel::report
