#include "core/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "core/file.h"

namespace automodel {

namespace {

int open_lock(const std::string& path) {
  create_directories(parent_path(path));
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
  if (fd < 0) throw InputError(cat("cannot write ", path, ": ", std::strerror(errno)));
  return fd;
}

}  // namespace

FileLock::FileLock(const std::string& path, const std::function<void()>& on_wait)
    : file_(open_lock(path)) {
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == ENOSYS || errno == ENOLCK || errno == EOPNOTSUPP) return;
    if (errno != EWOULDBLOCK && errno != EINTR) {
      throw InputError(cat("cannot lock ", path, ": ", std::strerror(errno)));
    }
    on_wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace automodel
