#pragma once

#include <cstdint>
#include <string>

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
  /// What tells that a file is another one, or has grown.
  struct Seen {
    uint64_t inode = 0;
    uint64_t size = 0;
    bool operator==(const Seen&) const = default;
  };
  static Seen look(const std::string& path);
  void read_new_steps(const Seen& now);

  std::string folder_;
  RecordedRun run_;
  Seen training_, events_, description_;
  uint64_t offset_ = 0;  // of training.jsonl: whole lines up to here are read
};

}  // namespace automodel::report
