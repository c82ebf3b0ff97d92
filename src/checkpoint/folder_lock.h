#pragma once

#include <string>

#include "core/descriptor.h"
#include "core/reporter.h"

namespace automodel::checkpoint {

inline constexpr const char* kLockName = ".lock";

/// Keeps other runs out of a checkpoint folder for its lifetime. The lock is on the open file
/// FOLDER/.lock and ends with the process, however that ends; the file remains.
class FolderLock final {
 public:
  /// The run's lock: rank 0 takes it before it reads or changes anything in the folder, which it
  /// makes if needed. Throws InputError naming the process that holds it. Waits at most
  /// `end_seconds` for what is left of an earlier run: ranks that lost their rank 0, or a rank 0
  /// that was killed and ends when a disk has taken what it wrote. Warns where the file system has
  /// no locks.
  static FolderLock of_run(const std::string& folder, Reporter& reporter, double end_seconds = 10);

  /// A further rank's share of the lock, taken after rank 0's: while the rank lives, it keeps the
  /// next run out.
  static FolderLock of_rank(const std::string& folder);

 private:
  explicit FolderLock(int fd) : file_(fd) {}

  Descriptor file_;
};

}  // namespace automodel::checkpoint
