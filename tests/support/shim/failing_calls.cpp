// A library for LD_PRELOAD that stands between a program and the kernel where it changes files:
// it counts the calls on paths in one folder and lets the n-th of them fail, end the process, send
// a signal or be slow. It is told what to do by the environment:
//
//   FAILING_CALLS_FOLDER   absolute path; calls on paths in it count
//   FAILING_CALLS_RANK     the process that counts: its number among the first one's forks; absent:
//                          all, each for itself. A process that never forks is rank 0.
//   FAILING_CALLS_AT       n, from 1; absent: every call
//   FAILING_CALLS_DO       fail:ERRNO  full  kill  torn  signal:NUMBER  slow:MILLISECONDS
//                          full: from n on there is no space; torn: half of a write, then kill
//   FAILING_CALLS_READS    also counts reads, and "look": opening what is there
//   FAILING_CALLS_LOG      a file: a line "RANK N CALL PATH" for each call
//   FAILING_CALLS_SERVE    a socket's descriptor: `automodel-main` is loaded once and forks in
//                          front of its main() for each request of tests/support/served_program.h,
//                          which brings arguments and the variables above
//
// What the C library calls inside itself is not seen.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

constexpr int kMostFiles = 4096;

enum class Action { kNone, kFail, kFull, kKill, kTorn, kSignal, kSlow };

struct Plan {
  char folder[PATH_MAX] = "";
  long rank = -1;
  long at = 0;
  Action action = Action::kNone;
  long number = 0;  // errno, signal or milliseconds
  bool has_reads = false;
  int log = -1;
};

Plan plan;
std::atomic<long> num_calls{0};
std::atomic<long> num_forks{0};
std::atomic<long> own_rank{0};
std::atomic<bool> is_full{false};
std::atomic<bool> is_tracked[kMostFiles];  // descriptors of files in the folder
std::atomic<bool> is_written[kMostFiles];  // those that may be written to

template <typename Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

long number_of(const char* text) {
  return text == nullptr ? 0 : ::strtol(text, nullptr, 10);
}

__attribute__((constructor)) void read_environment() {
  plan = Plan{};
  const char* folder = ::getenv("FAILING_CALLS_FOLDER");
  if (folder == nullptr) return;
  ::snprintf(plan.folder, sizeof(plan.folder), "%s", folder);
  if (const char* rank = ::getenv("FAILING_CALLS_RANK")) plan.rank = number_of(rank);
  plan.at = number_of(::getenv("FAILING_CALLS_AT"));
  plan.has_reads = ::getenv("FAILING_CALLS_READS") != nullptr;
  if (const char* log = ::getenv("FAILING_CALLS_LOG")) {
    plan.log = static_cast<int>(
        ::syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  }
  const char* action = ::getenv("FAILING_CALLS_DO");
  if (action == nullptr) return;
  const char* colon = ::strchr(action, ':');
  plan.number = colon == nullptr ? 0 : number_of(colon + 1);
  const struct {
    const char* name;
    Action action;
  } actions[] = {{"fail", Action::kFail}, {"full", Action::kFull},     {"kill", Action::kKill},
                 {"torn", Action::kTorn}, {"signal", Action::kSignal}, {"slow", Action::kSlow}};
  for (const auto& it : actions) {
    if (::strncmp(action, it.name, ::strlen(it.name)) == 0) plan.action = it.action;
  }
}

/// The absolute path of a name below a directory's descriptor.
void resolve(int directory, const char* name, char (&out)[PATH_MAX]) {
  if (name[0] == '/') {
    ::snprintf(out, sizeof(out), "%s", name);
    return;
  }
  char base[PATH_MAX] = "";
  if (directory == AT_FDCWD) {
    if (::getcwd(base, sizeof(base)) == nullptr) base[0] = '\0';
  } else {
    char link[64];
    ::snprintf(link, sizeof(link), "/proc/self/fd/%d", directory);
    const ssize_t size = ::readlink(link, base, sizeof(base) - 1);
    base[size < 0 ? 0 : size] = '\0';
  }
  const size_t used = ::strlen(base);
  ::snprintf(out, sizeof(out), "%s", base);
  ::snprintf(out + used, sizeof(out) - used, "/%s", name);
}

void path_of_descriptor(int fd, char (&out)[PATH_MAX]) {
  char link[64];
  ::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t size = ::readlink(link, out, sizeof(out) - 1);
  out[size < 0 ? 0 : size] = '\0';
}

bool is_in_folder(const char* path) {
  const size_t size = ::strlen(plan.folder);
  return size > 0 && ::strncmp(path, plan.folder, size) == 0 &&
         (path[size] == '/' || path[size] == '\0');
}

bool is_file(int fd) {
  return fd >= 0 && fd < kMostFiles && is_tracked[fd];
}

void log_call(long number, const char* call, const char* path) {
  if (plan.log < 0) return;
  char line[PATH_MAX + 128];
  const int size =
      ::snprintf(line, sizeof(line), "%ld %ld %s %s\n", own_rank.load(), number, call, path);
  ::syscall(SYS_write, plan.log, line, static_cast<size_t>(size));
}

void end_process() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

/// A call on a path of the folder: 0 when it shall be made, else the error it ends with. `torn` is
/// set when the process shall end in its middle.
int count(const char* call, const char* path, bool needs_space, bool* torn = nullptr) {
  if (plan.rank >= 0 && own_rank != plan.rank) return 0;
  const long number = ++num_calls;
  log_call(number, call, path);
  if (plan.action == Action::kFull && is_full && needs_space) return ENOSPC;
  if (plan.at != 0 && number != plan.at) return 0;
  switch (plan.action) {
    case Action::kNone:
      return 0;
    case Action::kFail:
      return static_cast<int>(plan.number);
    case Action::kFull:
      is_full = true;
      return needs_space ? ENOSPC : 0;
    case Action::kTorn:
      if (torn != nullptr) {
        *torn = true;
        return 0;
      }
      end_process();
      return 0;
    case Action::kKill:
      end_process();
      return 0;
    case Action::kSignal:
      ::kill(::getpid(), static_cast<int>(plan.number));
      return 0;
    case Action::kSlow: {
      timespec time{plan.number / 1000, plan.number % 1000 * 1000000};
      while (::nanosleep(&time, &time) != 0 && errno == EINTR) {
      }
      return 0;
    }
  }
  return 0;
}

/// Counts a call on a path; -1 with errno set when the call shall fail.
int count_at(const char* call, int directory, const char* name, bool needs_space) {
  if (plan.folder[0] == '\0' || name == nullptr) return 0;
  char path[PATH_MAX];
  resolve(directory, name, path);
  if (!is_in_folder(path)) return 0;
  const int error = count(call, path, needs_space);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

/// Counts a call on an open file of the folder; -1 with errno set when the call shall fail.
int count_file(const char* call, int fd, bool needs_space, bool* torn = nullptr) {
  if (!is_file(fd)) return 0;
  char path[PATH_MAX];
  path_of_descriptor(fd, path);
  const int error = count(call, path, needs_space, torn);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

int opened(int fd, int directory, const char* name, int flags) {
  if (fd < 0 || fd >= kMostFiles || plan.folder[0] == '\0') return fd;
  char path[PATH_MAX];
  resolve(directory, name, path);
  is_tracked[fd] = is_in_folder(path);
  is_written[fd] = is_tracked[fd] && (flags & O_ACCMODE) != O_RDONLY;
  return fd;
}

int open_at(int directory, const char* name, int flags, mode_t mode) {
  const bool creates = (flags & O_CREAT) != 0;
  if (creates && count_at("open", directory, name, true) != 0) return -1;
  if (!creates && plan.has_reads && count_at("look", directory, name, false) != 0) return -1;
  const int fd = static_cast<int>(::syscall(SYS_openat, directory, name, flags, mode));
  return opened(fd, directory, name, flags);
}

mode_t mode_of(int flags, va_list arguments) {
  const bool has_mode = (flags & (O_CREAT | O_TMPFILE)) != 0;
  return has_mode ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

using Main = int (*)(int, char**, char**);
Main real_main = nullptr;

bool transfer(int socket, void* bytes, size_t size, bool is_sent) {
  char* at = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t done = ::syscall(is_sent ? SYS_write : SYS_read, socket, at, size);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    size -= static_cast<size_t>(done);
  }
  return true;
}

void redirect(const char* path, int descriptor) {
  const long file = ::syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (file < 0) ::_exit(127);
  ::dup2(static_cast<int>(file), descriptor);
  ::syscall(SYS_close, file);
}

/// The forked program: texts are the files for its output, the number of its arguments, these, and
/// the variables that are its own. They stay, as a program's arguments do. LibTorch's destructors,
/// another tenth of a second, are left out.
[[noreturn]] void be_program(char* texts, size_t size) {
  ::setpgid(0, 0);
  const char* end = texts + size;
  const auto next = [&texts] {
    char* text = texts;
    texts += ::strlen(texts) + 1;
    return text;
  };
  redirect("/dev/null", STDIN_FILENO);
  redirect(next(), STDOUT_FILENO);
  redirect(next(), STDERR_FILENO);
  const long argc = number_of(next());
  char** argv = static_cast<char**>(::calloc(static_cast<size_t>(argc) + 1, sizeof(char*)));
  for (long i = 0; i < argc; ++i) argv[i] = next();
  while (texts < end) ::putenv(next());
  num_calls = 0;
  num_forks = 0;
  read_environment();
  const int status = real_main(static_cast<int>(argc), argv, environ);
  ::fflush(nullptr);
  ::_exit(status);
}

/// Stands in the place of main().
int serve(int argc, char** argv, char** environment) {
  const char* socket_text = ::getenv("FAILING_CALLS_SERVE");
  char self[PATH_MAX] = "";
  if (::readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) self[0] = '\0';
  const size_t length = ::strlen(self);
  const bool is_served =
      socket_text != nullptr && length > 5 && ::strcmp(self + length - 5, "-main") == 0;
  if (!is_served) return real_main(argc, argv, environment);
  const int socket = static_cast<int>(number_of(socket_text));
  ::unsetenv("FAILING_CALLS_SERVE");
  uint64_t size = 0;
  while (transfer(socket, &size, sizeof(size), false)) {
    char* texts = static_cast<char*>(::malloc(size));
    if (texts == nullptr || !transfer(socket, texts, size, false)) return 1;
    const pid_t pid = real<pid_t (*)()>("fork")();
    if (pid == 0) {
      ::syscall(SYS_close, socket);
      be_program(texts, size);
    }
    ::free(texts);
    int reply = static_cast<int>(pid);
    if (pid < 0 || !transfer(socket, &reply, sizeof(reply), true)) return 1;
    while (::waitpid(pid, &reply, 0) < 0 && errno == EINTR) {
    }
    if (!transfer(socket, &reply, sizeof(reply), true)) return 1;
  }
  return 0;
}

}  // namespace

extern "C" {

int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*loader_fini)(), void* stack_end) {
  real_main = main;
  return real<int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*)>(
      "__libc_start_main")(serve, argc, argv, init, fini, loader_fini, stack_end);
}

pid_t fork() {
  const long rank = num_forks++;
  const pid_t pid = real<pid_t (*)()>("fork")();
  if (pid == 0) {
    own_rank = rank;
    // Rank 0 goes on where the first process has come to, which has its number.
    if (rank != 0) num_calls = 0;
  }
  return pid;
}

int open(const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, name, flags, mode);
}

int open64(const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, name, flags, mode);
}

int openat(int directory, const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at(directory, name, flags, mode);
}

int openat64(int directory, const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at(directory, name, flags, mode);
}

// The names that a fortifying compiler puts in the place of the above.
int __open_2(const char* name, int flags) {
  return open_at(AT_FDCWD, name, flags, 0);
}
int __open64_2(const char* name, int flags) {
  return open_at(AT_FDCWD, name, flags, 0);
}

int close(int fd) {
  const bool counts = is_file(fd) && is_written[fd];
  const int result = counts ? count_file("close", fd, false) : 0;
  const int error = errno;
  if (fd >= 0 && fd < kMostFiles) is_tracked[fd] = false;
  // Linux closes a file also when it says that this failed.
  const int closed = static_cast<int>(::syscall(SYS_close, fd));
  if (result == 0) return closed;
  errno = error;
  return -1;
}

ssize_t write(int fd, const void* bytes, size_t size) {
  bool torn = false;
  if (count_file("write", fd, true, &torn) != 0) return -1;
  const ssize_t written = ::syscall(SYS_write, fd, bytes, torn ? size / 2 : size);
  if (torn) end_process();
  return written;
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  bool torn = false;
  if (count_file("pwrite", fd, true, &torn) != 0) return -1;
  const ssize_t written = ::syscall(SYS_pwrite64, fd, bytes, torn ? size / 2 : size, offset);
  if (torn) end_process();
  return written;
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  return pwrite(fd, bytes, size, offset);
}

ssize_t read(int fd, void* bytes, size_t size) {
  if (plan.has_reads && count_file("read", fd, false) != 0) return -1;
  return ::syscall(SYS_read, fd, bytes, size);
}
ssize_t __read_chk(int fd, void* bytes, size_t size, size_t) {
  return read(fd, bytes, size);
}

ssize_t pread(int fd, void* bytes, size_t size, off_t offset) {
  if (plan.has_reads && count_file("pread", fd, false) != 0) return -1;
  return ::syscall(SYS_pread64, fd, bytes, size, offset);
}
ssize_t pread64(int fd, void* bytes, size_t size, off64_t offset) {
  return pread(fd, bytes, size, offset);
}
ssize_t __pread_chk(int fd, void* bytes, size_t size, off_t offset, size_t) {
  return pread(fd, bytes, size, offset);
}
ssize_t __pread64_chk(int fd, void* bytes, size_t size, off64_t offset, size_t) {
  return pread(fd, bytes, size, offset);
}

int fsync(int fd) {
  return count_file("fsync", fd, false) != 0 ? -1 : static_cast<int>(::syscall(SYS_fsync, fd));
}
int fdatasync(int fd) {
  return count_file("fdatasync", fd, false) != 0 ? -1
                                                 : static_cast<int>(::syscall(SYS_fdatasync, fd));
}
int ftruncate(int fd, off_t size) {
  return count_file("ftruncate", fd, false) != 0
             ? -1
             : static_cast<int>(::syscall(SYS_ftruncate, fd, size));
}
int ftruncate64(int fd, off64_t size) {
  return ftruncate(fd, size);
}

int renameat(int from_directory, const char* from, int to_directory, const char* to) {
  if (count_at("rename", to_directory, to, false) != 0) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, from_directory, from, to_directory, to, 0));
}
int rename(const char* from, const char* to) {
  return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int mkdirat(int directory, const char* name, mode_t mode) {
  if (count_at("mkdir", directory, name, true) != 0) return -1;
  return static_cast<int>(::syscall(SYS_mkdirat, directory, name, mode));
}
int mkdir(const char* name, mode_t mode) {
  return mkdirat(AT_FDCWD, name, mode);
}

int unlinkat(int directory, const char* name, int flags) {
  if (count_at("unlink", directory, name, false) != 0) return -1;
  return static_cast<int>(::syscall(SYS_unlinkat, directory, name, flags));
}
int unlink(const char* name) {
  return unlinkat(AT_FDCWD, name, 0);
}
int rmdir(const char* name) {
  return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}
int remove(const char* name) {
  const int result = unlinkat(AT_FDCWD, name, 0);
  return result != 0 && errno == EISDIR ? unlinkat(AT_FDCWD, name, AT_REMOVEDIR) : result;
}

int symlinkat(const char* target, int directory, const char* name) {
  if (count_at("symlink", directory, name, true) != 0) return -1;
  return static_cast<int>(::syscall(SYS_symlinkat, target, directory, name));
}
int symlink(const char* target, const char* name) {
  return symlinkat(target, AT_FDCWD, name);
}

}  // extern "C"
