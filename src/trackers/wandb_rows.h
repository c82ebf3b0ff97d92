#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/json.h"
#include "trackers/tracker.h"

namespace automodel::trackers {

/// A row of a run's history: what all its records say of a step.
struct WandbRow {
  int64_t step = 0;
  Json values = Json::object();  ///< with _step, _timestamp and _runtime
};

/// What is said when rows leave something out.
inline constexpr const char* kWandbLeftOut =
    "W&B has rows of steps that are done again; they stay as they are";

/// Makes rows of records. W&B has one row a step, in order, and takes nothing more for a step once
/// it has its row: a row is whole when a record of a later step comes, or the run ends.
class WandbRows final {
 public:
  /// `start_seconds`: when the run began, in seconds since 1970.
  explicit WandbRows(double start_seconds) : start_seconds_(start_seconds) {}

  /// There are rows up to `last_step` already, of a run that has taken so many seconds.
  void go_on_behind(int64_t last_step, double runtime);

  /// Adds a record's values; returns the row that is whole now. Records of steps that have their
  /// row are left out.
  std::optional<WandbRow> add(const Record& record);

  /// The last row; nothing when there is none.
  std::optional<WandbRow> end();

  /// How many records the last row is made of so far.
  size_t num_held() const { return num_held_; }

  /// The step of the last row that is whole; nothing when there is none.
  std::optional<int64_t> last_step() const { return last_step_; }

  /// Whether something was left out.
  bool has_left_out() const { return has_left_out_; }

  /// The last value of each name, with _step and so on.
  const Json& summary() const { return summary_; }
  /// What the summary was before, an object.
  void set_summary(Json summary) { summary_ = std::move(summary); }

  /// Seconds that the run has taken.
  double runtime() const { return runtime_; }

 private:
  double start_seconds_;
  double runtime_before_ = 0;  // of earlier starts of the run
  double runtime_ = 0;
  std::optional<int64_t> last_step_;  // of whole rows
  std::optional<WandbRow> open_;
  size_t num_held_ = 0;
  bool has_left_out_ = false;
  Json summary_ = Json::object();
};

}  // namespace automodel::trackers
