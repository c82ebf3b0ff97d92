#pragma once

#include <functional>
#include <string>

#include "core/descriptor.h"

namespace automodel {

/// flock(2) on a file, which is created if needed; Python's filelock package takes the same lock.
/// Held until the object or the process ends.
class FileLock final {
 public:
  /// Waits for the lock, calling `on_wait` every tenth of a second, and makes the file's folder. On
  /// a file system without locks it holds none, as in Python. Throws InputError.
  FileLock(const std::string& path, const std::function<void()>& on_wait);

 private:
  Descriptor file_;
};

}  // namespace automodel
