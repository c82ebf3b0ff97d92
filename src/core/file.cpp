#include "core/file.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "core/checksum.h"
#include "core/descriptor.h"
#include "core/error.h"

namespace automodel {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const char* verb, const std::string& path, int error) {
  throw InputError(cat("cannot ", verb, " ", path, ": ", std::strerror(error)));
}

int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

std::string read_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail("read", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail("read", path, errno);
  if (S_ISDIR(info.st_mode)) fail("read", path, EISDIR);
  std::string bytes;
  bytes.reserve(static_cast<size_t>(info.st_size));
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = ::read(file.get(), buffer, sizeof(buffer));
    if (count < 0) {
      if (errno == EINTR) continue;
      fail("read", path, errno);
    }
    if (count == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(count));
  }
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  temporary_ = cat(path_, kTemporaryEnding, unique_suffix());
  // Exclusive: neither a link that lies there nor another's file is written to.
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd_ < 0) automodel::fail("write", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail(int error) {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  ::unlink(temporary_.c_str());
  automodel::fail("write", path_, error);
}

void AtomicFile::write(std::string_view bytes) {
  const int error = write_all(fd_, bytes);
  if (error != 0) fail(error);
}

void AtomicFile::write_at(uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    offset += static_cast<uint64_t>(count);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

void AtomicFile::finish() {
  AM_CHECK(fd_ >= 0, path_);
  if (::fsync(fd_) != 0) fail(errno);
  if (::close(std::exchange(fd_, -1)) != 0) fail(errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.finish();
}

std::string unique_suffix() {
  std::random_device device;
  const uint64_t high = device();
  return format_checksum(high << 32 | device());
}

LineWriter::LineWriter(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (fd_ < 0) fail("write", path, errno);
}

LineWriter::~LineWriter() {
  ::close(fd_);
}

void LineWriter::append(std::string_view line) {
  const int error = write_all(fd_, cat(line, '\n'));
  if (error != 0) fail("write", path_, error);
}

namespace {

DataFile::State state_of(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail("read", path, errno);
  if (S_ISDIR(info.st_mode)) fail("read", path, EISDIR);
  if (S_ISFIFO(info.st_mode)) {
    throw InputError(cat("cannot read ", path,
                         ": it is a pipe. Data are read more than once: write them to a file "
                         "first"));
  }
  return {static_cast<uint64_t>(info.st_size),
          int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

}  // namespace

DataFile::DataFile(const std::string& path)
    // Without waiting for whoever writes to a pipe.
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0) fail("read", path, errno);
  try {
    state_ = state_of(fd_, path_);
  } catch (const InputError&) {
    ::close(fd_);
    throw;
  }
}

DataFile::~DataFile() {
  ::close(fd_);
}

void DataFile::check_unchanged() const {
  const State now = state_of(fd_, path_);
  if (now == state_) return;
  const std::string how = now.num_bytes == state_.num_bytes
                              ? "it was written to"
                              : cat("it had ", state_.num_bytes, " bytes, it has ", now.num_bytes);
  throw InputError(cat(path_, " changed while it was in use: ", how));
}

std::string DataFile::read(uint64_t offset, uint64_t size) const {
  std::string bytes(std::min(size, state_.num_bytes - std::min(offset, state_.num_bytes)), '\0');
  uint64_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        ::pread(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read", path_, errno);
    if (count == 0) break;
    done += static_cast<uint64_t>(count);
  }
  // Behind the read: whatever was written before it is noticed.
  check_unchanged();
  AM_CHECK(done == bytes.size(), path_, " ended early");
  return bytes;
}

bool path_exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_directory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

uint64_t file_size(const std::string& path) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) fail("read", path, error.value());
  return size;
}

void create_directories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail("create directory", path, error.value());
}

std::vector<std::string> list_directory(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) fail("list directory", path, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

void sync_directory(const std::string& path) {
  const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || ::fsync(directory.get()) != 0) fail("sync directory", path, errno);
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  throw InputError(cat("cannot rename ", from, " to ", to, ": ", std::strerror(errno)));
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail("remove", path, error.value());
}

std::vector<std::string> matching_paths(const std::string& pattern) {
  glob_t found = {};
  const int status = ::glob(pattern.c_str(), GLOB_NOESCAPE | GLOB_NOSORT, nullptr, &found);
  const size_t num_paths = status == 0 ? found.gl_pathc : 0;
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + num_paths);
  ::globfree(&found);
  if (status == GLOB_NOSPACE) fail("list", pattern, ENOMEM);
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string path_join(std::string_view directory, std::string_view name) {
  return (fs::path(directory) / fs::path(name)).string();
}

std::string file_name(std::string_view path) {
  return fs::path(path).filename().string();
}

std::string parent_path(std::string_view path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string similar_path_hint(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const std::string parent = parent_path(path);
  if (!is_directory(parent)) return "";
  const auto match = closest_match(file_name(path), list_directory(parent));
  if (!match) return "";
  const std::string_view folder = path.substr(0, path.size() - file_name(path).size());
  return cat("; did you mean '", folder, *match, "'?");
}

}  // namespace automodel
