#include "core/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

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

/// Standard output or error, where a path leads to what that is; -1 for neither.
int standard_stream_at(const std::string& path) {
  struct stat there {};
  if (::stat(path.c_str(), &there) != 0) return -1;
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat stream {};
    if (::fstat(fd, &stream) != 0) continue;
    if (stream.st_dev == there.st_dev && stream.st_ino == there.st_ino) return fd;
  }
  return -1;
}

void write_to(int fd, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(path, errno);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace

void write_output_file(const std::string& path, std::string_view bytes) {
  if (is_free_or_plain(path)) {
    write_file_atomic(path, bytes);
    return;
  }
  if (const int stream = standard_stream_at(path); stream >= 0) {
    std::cout.flush();
    std::fflush(stdout);
    write_to(stream, path, bytes);
    return;
  }
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) refuse(path, errno);
  write_to(file.get(), path, bytes);
}

bool is_standard_output(const std::string& path) {
  return !is_free_or_plain(path) && standard_stream_at(path) == STDOUT_FILENO;
}

void check_output_place(const std::string& path) {
  if (is_free_or_plain(path)) return;
  struct stat info {};
  const bool is_link = ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
  throw InputError(cat("cannot write ", path, ": it is ",
                       is_link ? "a link, and" : "no plain file, and",
                       " a plain file would take its place"));
}

}  // namespace automodel
