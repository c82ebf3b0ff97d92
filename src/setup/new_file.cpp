#include "setup/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "core/file.h"

namespace automodel::setup {

void write_new_file(const std::string& path, std::string_view bytes) {
  // Created at once, so that of two writers one fails; filled by a rename, so that it is whole.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST) {
    throw UserError(cat(path, " is there already; give another name, or remove it first"));
  }
  if (fd < 0) throw InputError(cat("cannot write ", path, ": ", std::strerror(errno)));
  ::close(fd);
  try {
    write_file_atomic(path, bytes);
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
}

}  // namespace automodel::setup
