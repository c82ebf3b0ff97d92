#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "report/records/event_log.h"
#include "report/records/growing_file.h"
#include "report/records/step_table.h"

namespace automodel::report {

/// A number of a line of a validation file.
struct ValidationPoint {
  std::string set;
  double step = 0;
  double value = 0;
};

/// What validation files hold.
struct Validations {
  std::vector<ValidationPoint> losses;
  /// Numbers that only validations have, by their keys: scores of tool calls, accuracies. At most
  /// kMostExtras.
  std::map<std::string, std::vector<ValidationPoint>> others;
};

/// All that a run has written about itself.
struct RecordedRun {
  std::string name;    ///< of its folder
  std::string folder;  ///< as it was given
  Json description;    ///< run.json; null without one
  StepTable steps;
  int64_t num_step_rewrites = 0;  ///< how often its records were cut or written anew
  Validations validations;
  EventLog events;
  int64_t num_unread_lines = 0;  ///< half-written, or otherwise no record
  /// Whether a process works in the folder, when it was last looked at.
  LockState lock = LockState::kUnknown;

  RunState state() const { return state_of(events); }
  /// Whether no process works in the folder any more: it said so, or its lock is free.
  bool has_ended() const { return state() != RunState::kUnknown || lock == LockState::kFree; }
  /// The step after the last one, of max_steps; absent where run.json does not tell.
  std::optional<int64_t> max_steps() const;
};

/// Runs that are shown together, which somebody else owns.
using RunViews = std::vector<std::reference_wrapper<const RecordedRun>>;

/// Whether a folder has training.jsonl or run.json.
bool holds_a_run(const std::string& folder);

/// Throws UserError when a folder is no run's.
void check_run_folder(const std::string& folder);

/// Names of a folder's validation.jsonl and validation_NAME.jsonl. Throws InputError.
std::vector<std::string> validation_files(const std::string& folder);

/// What those files hold; lines that are no records are added to `num_unread`.
Validations read_validations(const std::string& folder, int64_t* num_unread = nullptr);

/// run.json; null when there is none that can be read as JSON.
Json read_run_description(const std::string& folder);

/// Reads the files of a run's folder. A line that is cut or no JSON is counted and left out; a
/// run.json of another form is taken for absent. Throws UserError when the folder is no run's,
/// InputError when a file cannot be read.
RecordedRun read_run(const std::string& folder);

/// What runs are called: their folders' names, or whole paths where two are the same.
std::vector<std::string> run_names(const std::vector<std::string>& folders);

/// Reads several, which are called by run_names().
std::vector<RecordedRun> read_runs(const std::vector<std::string>& folders);

}  // namespace automodel::report
