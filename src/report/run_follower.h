#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "report/growing_file.h"
#include "report/run_files.h"

namespace automodel::report {

/// A run's files as they grow. Only what is new is read; files that a resumed run has written anew
/// are read again.
class RunFollower final {
 public:
  /// Throws as read_run() does.
  explicit RunFollower(const std::string& folder, std::string name);

  /// Reads what was added; returns whether anything was. Throws InputError.
  bool update();

  const RecordedRun& run() const { return run_; }
  /// Whether no process works in the folder any more: it said so, or its lock is free.
  bool has_ended() const;

 private:
  void read_new_steps(const FileState& now);
  bool update_validations();

  std::string folder_;
  RecordedRun run_;
  FileState training_, events_, description_;
  std::map<std::string, FileState> validations_;  // by file
  uint64_t offset_ = 0;  // of training.jsonl: whole lines up to here are read
  int64_t num_unread_steps_ = 0, num_unread_events_ = 0, num_unread_validations_ = 0;
};

}  // namespace automodel::report
