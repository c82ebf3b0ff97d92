#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/reporter.h"
#include "loggers/log_file.h"
#include "loggers/run_events.h"

namespace automodel::recipes {

struct RunLogOptions {
  std::string folder;       ///< checkpoint_dir, locked by the caller
  bool is_writing = false;  ///< rank 0
  int64_t first_step = 0;
  bool is_resumed = false;
  std::vector<std::string> validation_sets = {};  ///< which the run will write records of
};

/// The file of a run's folder that has the records of its steps.
inline constexpr const char* kTrainingLog = "training.jsonl";

/// The file that has those of a validation set.
std::string log_of(const std::string& validation_set);

/// Refuses a folder in which something else lies where a run would write its logs, before anything
/// is written there. Throws InputError.
void check_log_places(const std::string& folder, const std::vector<std::string>& validation_sets);

/// Writes a run's records: a line of JSON each in checkpoint_dir, and a line on the console. Only
/// rank 0 writes. Every record reaches the kernel before the call returns. One that cannot be
/// written, as on a full disk, is lost: the reporter hears so once for each file, the events when
/// the file is written again.
class RunLog final {
 public:
  /// A run that continues from a checkpoint drops the records from `first_step` on, since it
  /// repeats these steps. A fresh run begins new files and renames those of an earlier run to
  /// NAME.old. Other files that are called as a log might be are left alone; one that stands where
  /// a log of this run belongs is an InputError. `reporter` and `events` outlive this object.
  /// Throws InputError.
  RunLog(const RunLogOptions& options, Reporter& reporter, loggers::RunEvents& events);

  void train(const Json& record);
  void validation(const std::string& set, const Json& record);

  /// Records which files have lost their last lines. Called at the end of a run.
  void end();

 private:
  struct File {
    loggers::LogFile lines;
    bool has_warned = false;
  };

  File& file(const std::string& name);
  void write(const std::string& name, const Json& record);

  Reporter& reporter_;
  loggers::RunEvents& events_;
  std::string folder_;
  bool is_writing_;
  std::map<std::string, File> files_;
};

/// The console lines of records, in upstream's format.
std::string train_line(const Json& record);
std::string validation_line(const std::string& set, const Json& record);

}  // namespace automodel::recipes
