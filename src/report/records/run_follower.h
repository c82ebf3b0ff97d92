#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "report/records/growing_file.h"
#include "report/records/run_files.h"

namespace automodel::report {

/// How much of a run that goes on stays in memory.
struct FollowerLimits {
  size_t num_rows = 0;  ///< steps beyond these, 4096 or more, are thinned; 0: all stay as they are
  uint64_t piece_bytes = 1 << 25;  ///< of a large file that are read at a time
};

/// A run's files as they grow. Only what is new is read; files that a resumed run has written anew
/// are read again.
class RunFollower final {
 public:
  /// Throws as read_run() does.
  RunFollower(const std::string& folder, std::string name, const FollowerLimits& limits = {});

  /// Reads what was added; returns whether anything was. Throws InputError.
  bool update();

  const RecordedRun& run() const { return run_; }
  /// Whether no process works in the folder any more: it said so, or its lock is free.
  bool has_ended() const;

 private:
  /// A file of lines as far as it is read.
  struct Followed {
    FileState state;
    uint64_t offset = 0;  ///< whole lines up to here are read
    std::string end;      ///< bytes_before() it
  };
  /// Whether what was read of a file is no longer its beginning.
  static bool is_rewritten(const Followed& file, const std::string& path, const FileState& now);

  void read_new_steps(const std::string& path, const FileState& now);
  void read_new_events(const std::string& path, const FileState& now);
  bool update_validations();

  std::string folder_;
  FollowerLimits limits_;
  RecordedRun run_;
  Followed training_, events_;
  FileState description_;
  std::map<std::string, FileState> validations_;  // by file
  int64_t num_unread_steps_ = 0, num_unread_validations_ = 0;
};

}  // namespace automodel::report
