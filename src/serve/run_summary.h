#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/facts/run_facts.h"
#include "report/records/growing_file.h"
#include "report/records/run_files.h"
#include "serve/run_finder.h"

namespace automodel::serve {

/// What a run is doing, as far as its files tell.
enum class RunStatus { kRunning, kFinished, kStopped, kFailed, kStale };

inline constexpr std::array<RunStatus, 5> kStatuses = {RunStatus::kRunning, RunStatus::kFinished,
                                                       RunStatus::kStopped, RunStatus::kFailed,
                                                       RunStatus::kStale};

/// "running", "finished", "stopped" (by a signal), "failed", "stale" (without an end, and
/// nobody works in it any more).
const char* status_name(RunStatus status);

/// Seconds without a sign of life after which a run whose lock says nothing is stale.
inline constexpr double kStaleSeconds = 600;

/// A run that has not said how it ended is running while its lock is held, and stale once that is
/// free. Without a lock it is running for ten minutes after its files were last written to.
RunStatus run_status(report::RunState state, report::LockState lock, double seconds_since_written);

/// A run in the list.
struct RunSummary {
  std::string id;    ///< its path from the served folder, as the file system has it
  std::string name;  ///< the same as valid UTF-8; the folder's own name where that is ""
  RunStatus status = RunStatus::kRunning;
  std::string detail;  ///< of a failure
  std::string task;    ///< "LoRA", "distillation", ...; "" where run.json does not tell
  std::string model;   ///< as the recipe names it, else its architecture
  std::optional<int64_t> step, max_steps;  ///< last step, counted from 0; how many there will be
  std::array<double, report::kNumMetrics> last;  ///< of that step; NaN without one
  double step_seconds = std::nan("");            ///< its time since 1970
  double written_seconds = 0;                    ///< when a file was last written to
  double mfu_percent = std::nan("");             ///< of the last step; NaN where it has none
  double seconds_left = std::nan("");            ///< until the last step; NaN when it is not known
  std::vector<double> latest_losses;             ///< of the file's last steps
  std::optional<report::Alert> alert;            ///< the latest since the last start
  std::string format_note;                       ///< what to say of a run.json of another format

  std::array<bool, report::kNumMetrics> is_recorded{};  ///< whether the latest steps have it
  double last_of(report::Metric metric) const { return last[static_cast<size_t>(metric)]; }
};

/// Reads what the list shows of a run: the ends of its files, and only of those that have changed.
class SummaryReader final {
 public:
  /// `root_name`: what a run without an id is called.
  SummaryReader(const FoundRun& run, const std::string& root_name);

  /// `now`: seconds since 1970. Files that are half-written or no records count as far as they can
  /// be read. Throws InputError when a file cannot be read.
  const RunSummary& update(double now);

 private:
  void read_steps();
  void read_events(bool is_same_file);
  void read_description();

  std::string folder_;
  RunSummary summary_;
  report::EventLog turns_;  // starts, ends, resumes and rollbacks among the last events
  report::FileState training_, events_, description_;
};

/// A text in which what is not UTF-8, and control characters, are U+FFFD.
std::string shown_text(const std::string& text);

}  // namespace automodel::serve
