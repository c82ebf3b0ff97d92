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
  /// next run out. `owner`: what rank 0's lock says there, "" where nothing need be. Throws
  /// InputError when the folder does not say it within `seconds`, in which a network's file system
  /// shows other hosts what is new: then it is another folder of the same name.
  static FolderLock of_rank(const std::string& folder, const std::string& owner,
                            double seconds = 60);

  /// What the folder says of this lock's holder; "" of a further rank's share.
  const std::string& owner() const { return owner_; }

 private:
  explicit FolderLock(int fd) : file_(fd) {}

  Descriptor file_;
  std::string owner_;
};

}  // namespace automodel::checkpoint
