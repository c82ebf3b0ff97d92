#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace automodel::report {

/// What is drawn of a step's record, by its key in training.jsonl.
enum class Metric { kLoss, kGradNorm, kLr, kTokensPerSecond, kMemory };

inline constexpr size_t kNumMetrics = 5;
inline constexpr std::array<Metric, kNumMetrics> kMetrics = {
    Metric::kLoss, Metric::kGradNorm, Metric::kLr, Metric::kTokensPerSecond, Metric::kMemory};

/// "loss", "grad_norm", "lr", "tps", "mem".
std::string_view metric_key(Metric metric);
/// "loss", "gradient norm", "learning rate", "tokens/s", "memory, GiB".
std::string_view metric_title(Metric metric);

/// The records of training.jsonl, a column each of the same length. What a record lacks is NaN.
struct StepTable {
  std::vector<double> step;
  std::vector<double> seconds;  ///< since 1970, UTC
  std::vector<double> tokens;   ///< of this step and all before it
  std::array<std::vector<double>, kNumMetrics> metrics;

  size_t size() const { return step.size(); }
  const std::vector<double>& of(Metric metric) const {
    return metrics[static_cast<size_t>(metric)];
  }
};

/// A line of a validation file.
struct ValidationPoint {
  std::string set;
  double step = 0;
  double loss = 0;
};

/// What happened to a run.
struct RunEvent {
  std::string name;
  double seconds = 0;           ///< since 1970, UTC; NaN when it is not told
  std::optional<int64_t> step;  ///< where it has one
  Json fields;
};

/// How a run has ended, if it has.
enum class RunState { kUnknown, kDone, kPreempted, kFailed };

/// All that a run has written about itself.
struct RecordedRun {
  std::string name;    ///< of its folder
  std::string folder;  ///< as it was given
  Json description;    ///< run.json; null without one
  StepTable steps;
  std::vector<ValidationPoint> validations;
  std::vector<RunEvent> events;
  int64_t num_unread_lines = 0;  ///< half-written, or otherwise no record

  RunState state() const;
  /// The step after the last one, of max_steps; absent where run.json does not tell.
  std::optional<int64_t> max_steps() const;
};

/// Seconds since 1970 of "2026-08-01T12:34:56.789Z"; NaN for another text.
double seconds_of(std::string_view timestamp);

/// Adds the records of whole lines of training.jsonl; returns how many were no records. Lines in
/// parts of a file are read by several threads.
int64_t add_steps(std::string_view lines, StepTable& steps);

/// Whether a folder has training.jsonl or run.json.
bool holds_a_run(const std::string& folder);

/// Throws UserError when a folder is no run's.
void check_run_folder(const std::string& folder);

/// Events of whole lines of events.jsonl; lines that are no events are added to `num_unread`.
std::vector<RunEvent> parse_run_events(std::string_view lines, int64_t* num_unread = nullptr);

/// A run's events; lines that are no events are added to `num_unread`.
std::vector<RunEvent> read_run_events(const std::string& folder, int64_t* num_unread = nullptr);

/// Names of a folder's validation.jsonl and validation_NAME.jsonl. Throws InputError.
std::vector<std::string> validation_files(const std::string& folder);

/// What those files hold; lines that are no records are added to `num_unread`.
std::vector<ValidationPoint> read_validations(const std::string& folder,
                                              int64_t* num_unread = nullptr);

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
