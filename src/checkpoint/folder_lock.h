#pragma once

#include <string>

#include "core/descriptor.h"
#include "core/reporter.h"

namespace automodel::checkpoint {

inline constexpr const char* kLockName = ".lock";

/// Keeps a second run out of a checkpoint folder as long as it lives. The lock belongs to the open
/// file FOLDER/.lock and ends with its process, however that ends; the file stays.
class FolderLock final {
 public:
  /// The run's: rank 0 takes it before it reads or changes anything in the folder, which is made
  /// if it is not there. Throws InputError that names the process which has it. Ranks of a run that
  /// has lost its rank 0 are waited for, `ranks_end_seconds` at most. Where the file system has no
  /// locks: a warning.
  static FolderLock of_run(const std::string& folder, Reporter& reporter,
                           double ranks_end_seconds = 10);

  /// A further rank's share of it, once rank 0 has it: what it writes keeps the next run out.
  static FolderLock of_rank(const std::string& folder);

 private:
  explicit FolderLock(int fd) : file_(fd) {}

  Descriptor file_;
};

}  // namespace automodel::checkpoint
