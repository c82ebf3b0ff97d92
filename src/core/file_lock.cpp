#include "core/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "core/file.h"

namespace automodel {

FileLock::FileLock(const std::string& path, const std::function<void()>& on_wait) {
  create_directories(parent_path(path));
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
  if (fd_ < 0) throw InputError(cat("cannot write ", path, ": ", std::strerror(errno)));
  while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == ENOSYS || errno == ENOLCK || errno == EOPNOTSUPP) return;
    if (errno != EWOULDBLOCK && errno != EINTR) {
      const int error = errno;
      ::close(fd_);
      throw InputError(cat("cannot lock ", path, ": ", std::strerror(error)));
    }
    on_wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

FileLock::~FileLock() {
  ::close(fd_);
}

}  // namespace automodel
