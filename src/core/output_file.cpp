#include "core/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/descriptor.h"
#include "core/error.h"
#include "core/file.h"

namespace automodel {

namespace {

/// Whether a path has nothing, or a plain file that is not reached through a link.
bool is_free_or_plain(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode);
}

[[noreturn]] void refuse(const std::string& path, int error) {
  throw InputError(cat("cannot write ", path, ": ", std::strerror(error)));
}

}  // namespace

void write_output_file(const std::string& path, std::string_view bytes) {
  if (is_free_or_plain(path)) {
    write_file_atomic(path, bytes);
    return;
  }
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) refuse(path, errno);
  while (!bytes.empty()) {
    const ssize_t count = ::write(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(path, errno);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

void check_output_place(const std::string& path) {
  if (!is_free_or_plain(path)) {
    throw InputError(cat("cannot write ", path, ": it is no plain file, and would be replaced"));
  }
}

}  // namespace automodel
