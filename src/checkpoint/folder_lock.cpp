#include "checkpoint/folder_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "core/process.h"
#include "core/text.h"

namespace automodel::checkpoint {

namespace {

/// The bytes of the file that are locked by the run and by its further ranks.
constexpr off_t kRunByte = 0;
constexpr off_t kRanksByte = 1;

constexpr std::chrono::milliseconds kPoll(50);

struct flock byte_lock(short type, off_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

/// Returns 0, or the error: EAGAIN when another process holds the lock.
int try_lock(int fd, short type, off_t byte) {
  struct flock lock = byte_lock(type, byte);
  if (::fcntl(fd, F_OFD_SETLK, &lock) == 0) return 0;
  return errno == EACCES ? EAGAIN : errno;
}

int open_lock(const std::string& folder) {
  const std::string path = path_join(folder, kLockName);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) throw InputError(cat("cannot write ", path, ": ", std::strerror(errno)));
  return fd;
}

/// Where owner_text() has the process and the host.
constexpr size_t kPidWord = 1;
constexpr size_t kHostWord = 4;

/// "process 17 on host a since 2026-01-31T12:00:00Z".
std::string owner_text() {
  return cat("process ", int64_t{::getpid()}, " on host ", host_name(), " since ", utc_timestamp());
}

std::string write_owner(int fd, const std::string& folder) {
  const std::string owner = owner_text();
  const std::string text = owner + "\n";
  errno = ENOSPC;  // pwrite() sets none where it writes a part of the text
  if (::ftruncate(fd, 0) == 0 &&
      ::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
      ::fsync(fd) == 0) {
    return owner;
  }
  throw InputError(cat("cannot write ", path_join(folder, kLockName), ": ", std::strerror(errno)));
}

[[noreturn]] void refuse(const std::string& folder, const std::string& who) {
  throw InputError(cat("checkpoint folder ", folder, " is in use by ", who,
                       "; wait until it has ended, or choose another checkpoint.checkpoint_dir"));
}

/// The text of write_owner(), or "".
std::string owner_in(const std::string& folder) {
  return std::string(trim(read_file(path_join(folder, kLockName))));
}

std::string run_of(const std::string& owner) {
  return owner.empty() ? "another run" : cat("another run (", owner, ")");
}

/// Whether the process that an owner's text names is one of this host and ends.
bool is_owner_ending(const std::string& owner) {
  const std::vector<std::string> words = split(owner, ' ');
  const std::vector<std::string> own = split(owner_text(), ' ');
  if (words.size() != own.size() || words[kHostWord] != own[kHostWord]) return false;
  const auto pid = parse_int(words[kPidWord]);
  return pid && is_ending(*pid);
}

}  // namespace

FolderLock FolderLock::of_run(const std::string& folder, Reporter& reporter, double end_seconds) {
  if (!is_directory(folder)) {
    create_directories(folder);
    sync_directory(parent_path(std::filesystem::absolute(folder).lexically_normal().string()));
  }
  const int fd = open_lock(folder);
  FolderLock lock(fd);
  const double deadline = monotonic_seconds() + end_seconds;
  int error = try_lock(fd, F_WRLCK, kRunByte);
  while (error == EAGAIN) {
    const std::string owner = owner_in(folder);
    if (!is_owner_ending(owner) || monotonic_seconds() > deadline) refuse(folder, run_of(owner));
    std::this_thread::sleep_for(kPoll);
    error = try_lock(fd, F_WRLCK, kRunByte);
  }
  if (error != 0) {
    reporter.warning(cat("checkpoint folder ", folder, " cannot be locked (", std::strerror(error),
                         "): a second run in it would not be noticed"));
    lock.owner_ = write_owner(fd, folder);
    return lock;
  }
  while (try_lock(fd, F_WRLCK, kRanksByte) == EAGAIN) {
    if (monotonic_seconds() > deadline) {
      refuse(folder, cat("ranks that are left of ", run_of(owner_in(folder))));
    }
    std::this_thread::sleep_for(kPoll);
  }
  try_lock(fd, F_UNLCK, kRanksByte);
  lock.owner_ = write_owner(fd, folder);
  return lock;
}

FolderLock FolderLock::of_rank(const std::string& folder, const std::string& owner,
                               double seconds) {
  const std::string path = path_join(folder, kLockName);
  const double deadline = monotonic_seconds() + seconds;
  while (!owner.empty() && (!path_exists(path) || owner_in(folder) != owner)) {
    if (monotonic_seconds() > deadline) {
      throw InputError(cat("checkpoint folder ", folder, " on host ", host_name(),
                           " is not the one that rank 0 has (", owner,
                           "): checkpoint.checkpoint_dir must be a folder that all hosts share"));
    }
    std::this_thread::sleep_for(kPoll);
  }
  if (!is_directory(folder)) return FolderLock(-1);  // and nothing will be written there
  const int fd = open_lock(folder);
  try_lock(fd, F_RDLCK, kRanksByte);
  return FolderLock(fd);
}

}  // namespace automodel::checkpoint
