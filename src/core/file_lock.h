#pragma once

#include <functional>
#include <string>

#include "core/descriptor.h"

namespace automodel {

/// flock(2) of a file that is made where there is none: what the filelock package takes too. Held
/// until the object ends, or the process.
class FileLock final {
 public:
  /// Waits for the lock; calls `on_wait` every tenth of a second meanwhile. The file's folder is
  /// made. A file system without locks gives none, as it does to Python. Throws InputError.
  FileLock(const std::string& path, const std::function<void()>& on_wait);

 private:
  Descriptor file_;
};

}  // namespace automodel
