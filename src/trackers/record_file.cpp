#include "trackers/record_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace automodel::trackers {

namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  throw InputError(cat("cannot write ", path, ": ", std::strerror(error)));
}

}  // namespace

RecordFile::~RecordFile() {
  if (fd_ >= 0) ::close(fd_);
}

bool RecordFile::create(const std::string& path) {
  path_ = path;
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0 && errno != EEXIST) fail(path, errno);
  return fd_ >= 0;
}

void RecordFile::append(std::string_view bytes) {
  size_t num_written = 0;
  while (num_written < bytes.size()) {
    const ssize_t written = ::pwrite(fd_, bytes.data() + num_written, bytes.size() - num_written,
                                     num_bytes_ + static_cast<int64_t>(num_written));
    if (written > 0) {
      num_written += static_cast<size_t>(written);
    } else if (written == 0 || errno != EINTR) {
      const int error = written == 0 ? ENOSPC : errno;
      // Where this fails too, the next piece is written over what is torn.
      (void)!::ftruncate(fd_, num_bytes_);
      fail(path_, error);
    }
  }
  num_bytes_ += static_cast<int64_t>(bytes.size());
}

}  // namespace automodel::trackers
