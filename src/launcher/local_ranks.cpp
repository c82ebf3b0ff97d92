#include "launcher/local_ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "launcher/environment.h"

namespace automodel::launcher {

namespace {

constexpr size_t kLongestText = 60000;  // a pipe holds 64 KiB without a reader
constexpr std::array<int, 5> kForwarded = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

struct Listener {
  int fd = -1;
  int port = 0;
};

/// A listening socket on a free port of the loopback interface.
Listener listen_on_free_port() {
  Listener listener;
  listener.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool is_listening = listener.fd >= 0 && ::bind(listener.fd, generic, size) == 0 &&
                            ::listen(listener.fd, 1024) == 0 &&
                            ::getsockname(listener.fd, generic, &size) == 0;
  if (!is_listening) {
    throw UserError(cat("cannot open a port on 127.0.0.1: ", std::strerror(errno)));
  }
  listener.port = ntohs(address.sin_port);
  return listener;
}

/// What a rank says when it fails, from its process to this one.
class TextPipe final {
 public:
  TextPipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw UserError(cat("cannot open a pipe: ", std::strerror(errno)));
    }
    read_end_ = ends[0];
    write_end_ = ends[1];
  }
  ~TextPipe() {
    if (read_end_ >= 0) ::close(read_end_);
    close_write_end();
  }
  TextPipe(TextPipe&& other) noexcept
      : read_end_(std::exchange(other.read_end_, -1)),
        write_end_(std::exchange(other.write_end_, -1)) {}
  TextPipe(const TextPipe&) = delete;
  TextPipe& operator=(const TextPipe&) = delete;

  void close_write_end() {
    if (write_end_ >= 0) ::close(write_end_);
    write_end_ = -1;
  }

  /// In the rank.
  void write(const std::string& text) const {
    const size_t size = std::min(text.size(), kLongestText);
    if (::write(write_end_, text.data(), size) < 0) return;  // the launcher is gone
  }

  /// In the launcher, once the rank has ended; reads what is there and no more, since a process
  /// that the rank left behind may still hold the other end.
  std::string read() const {
    ::fcntl(read_end_, F_SETFL, O_NONBLOCK);
    std::string text(kLongestText, '\0');
    const ssize_t size = ::read(read_end_, text.data(), text.size());
    text.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return text;
  }

 private:
  int read_end_ = -1;
  int write_end_ = -1;
};

struct Child {
  pid_t pid = 0;
  TextPipe pipe;
  bool is_running = true;
};

/// Runs in a fresh child; never returns.
[[noreturn]] void be_rank(const LocalRank& place, const LocalRun& run, const TextPipe& pipe,
                          const sigset_t& old_mask) {
  ::sigprocmask(SIG_SETMASK, &old_mask, nullptr);
  RankOutcome outcome(0);
  try {
    outcome = run.rank_main(place);
  } catch (const UserError& error) {
    outcome = {static_cast<int>(error.code()), error.what()};
  } catch (const std::exception& error) {
    outcome = {static_cast<int>(ExitCode::kInternal), internal_error_text(error)};
  }
  std::fflush(nullptr);
  pipe.write(outcome.failure);
  ::_exit(outcome.status);
}

void signal_all(const std::vector<Child>& children, int signal) {
  for (const Child& child : children) {
    if (child.is_running) ::kill(child.pid, signal);
  }
}

/// Waits for children and passes signals on until all have ended.
class Watch final {
 public:
  Watch(std::vector<Child> children, const sigset_t& signals, const LocalRun& run)
      : children_(std::move(children)), signals_(signals), run_(run) {}

  int run() {
    while (num_running() > 0) {
      const timespec timeout{0, 100'000'000};
      const int signal = ::sigtimedwait(&signals_, nullptr, &timeout);
      if (signal > 0 && signal != SIGCHLD) {
        signal_all(children_, signal);
        forwarded_.insert(signal);
      }
      reap();
      press();
    }
    if (cause_ && !cause_->is_reported) report();
    return cause_ ? cause_->failure.status : result_;
  }

 private:
  /// Why the run fails.
  struct Cause {
    RunFailure failure;
    bool is_echo = false;  ///< the rank only reports a peer's failure
    bool is_reported = false;
  };

  int num_running() const {
    int count = 0;
    for (const Child& child : children_) count += child.is_running ? 1 : 0;
    return count;
  }

  void reap() {
    int status = 0;
    for (pid_t pid = ::waitpid(-1, &status, WNOHANG); pid > 0;
         pid = ::waitpid(-1, &status, WNOHANG)) {
      for (size_t rank = 0; rank < children_.size(); ++rank) {
        if (children_[rank].pid != pid) continue;
        children_[rank].is_running = false;
        take_status(rank, status);
      }
    }
  }

  /// Ranks that stay after a failure are stopped.
  void press() {
    if (failure_seconds_ == 0 || num_running() == 0) return;
    // Asked first whatever the time is: this process may have been stopped for long.
    const double now = monotonic_seconds();
    if (asked_seconds_ == 0) {
      if (now - failure_seconds_ <= run_.grace_seconds / 2) return;
      signal_all(children_, SIGTERM);
      asked_seconds_ = now;
    } else if (now - asked_seconds_ > run_.grace_seconds / 2) {
      signal_all(children_, SIGKILL);
    }
  }

  Cause cause_of(size_t rank, int status) const {
    const Child& child = children_[rank];
    const int number = static_cast<int>(rank);
    if (!WIFSIGNALED(status)) {
      const std::string text = child.pipe.read();
      const int code = WEXITSTATUS(status);
      return {{number, code, text.empty() ? text : cat("rank ", rank, ": ", text)},
              code == static_cast<int>(ExitCode::kRankFailed)};
    }
    const int signal = WTERMSIG(status);
    if (forwarded_.contains(signal)) {
      return {
          {-1, 128 + signal, cat("stopped by signal ", signal, " (", ::strsignal(signal), ")")}};
    }
    return {{number, 128 + signal,
             cat("rank ", rank, " (pid ", child.pid, ") was killed by signal ", signal, " (",
                 ::strsignal(signal), ")")}};
  }

  void take_status(size_t rank, int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    // A rank that saved after a preemption signal ends well; so do the others, a moment later.
    if (WIFEXITED(status) && WEXITSTATUS(status) == static_cast<int>(ExitCode::kPreempted)) {
      result_ = WEXITSTATUS(status);
      return;
    }
    if (failure_seconds_ == 0) failure_seconds_ = monotonic_seconds();
    // What we stopped ourselves is no cause.
    if (cause_ && (asked_seconds_ > 0 || !cause_->is_echo)) return;
    Cause cause = cause_of(rank, status);
    if (cause_ && cause.is_echo) return;
    cause_ = std::move(cause);
    if (!cause_->is_echo) report();
  }

  void report() {
    cause_->is_reported = true;
    const RunFailure& failure = cause_->failure;
    if (failure.text.empty()) return;
    if (run_.report) {
      run_.report(failure);
    } else {
      std::fprintf(stderr, "%s\n", failure.text.c_str());
    }
  }

  std::vector<Child> children_;
  sigset_t signals_;
  const LocalRun& run_;
  int result_ = 0;
  std::set<int> forwarded_;
  double failure_seconds_ = 0;  // of the first; 0: none
  double asked_seconds_ = 0;    // when the others were sent SIGTERM; 0: they were not
  std::optional<Cause> cause_;
};

int64_t num_threads() {
  for (const std::string& line : split(read_file("/proc/self/status"), '\n')) {
    if (line.starts_with("Threads:")) return parse_int(trim(line.substr(8))).value_or(0);
  }
  return 0;
}

#if defined(__SANITIZE_THREAD__)
constexpr int64_t kNumOwnThreads = 2;  // the sanitizer has one
#else
constexpr int64_t kNumOwnThreads = 1;
#endif

/// Forking a process with threads copies locks that nobody will ever open.
void check_single_threaded() {
  constexpr double kEndingSeconds = 10;  // a thread that was joined may be listed a moment longer
  const double deadline = monotonic_seconds() + kEndingSeconds;
  while (num_threads() > kNumOwnThreads && monotonic_seconds() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  AM_CHECK(num_threads() <= kNumOwnThreads,
           "ranks are forked while the process has threads: ", num_threads());
}

/// Blocks the signals that the launcher takes by sigtimedwait, as long as it lives. Those that come
/// when the ranks have ended were meant for them, and do not end this process before it has said
/// and recorded how the run ended.
class SignalBlock final {
 public:
  SignalBlock() {
    ::sigemptyset(&signals_);
    ::sigaddset(&signals_, SIGCHLD);
    for (const int signal : kForwarded) ::sigaddset(&signals_, signal);
    ::sigprocmask(SIG_BLOCK, &signals_, &old_mask_);
  }
  ~SignalBlock() {
    constexpr timespec kNoWait{};
    while (::sigtimedwait(&signals_, nullptr, &kNoWait) > 0) continue;
    ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

  const sigset_t& signals() const { return signals_; }
  const sigset_t& old_mask() const { return old_mask_; }

 private:
  sigset_t signals_{};
  sigset_t old_mask_{};
};

void stop_and_reap(const std::vector<Child>& children) {
  signal_all(children, SIGKILL);
  for (const Child& child : children) ::waitpid(child.pid, nullptr, 0);
}

std::vector<Child> start_ranks(int num_ranks, const LocalRun& run, const Listener& listener,
                               const sigset_t& old_mask) {
  const pid_t parent = ::getpid();
  const int num_threads = threads_per_rank(process_environment(), num_ranks);
  std::fflush(nullptr);
  std::vector<Child> children;
  for (int rank = 0; rank < num_ranks; ++rank) {
    TextPipe pipe;
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(128 + SIGKILL);  // the launcher was gone before the prctl
      ::close(listener.fd);
      be_rank({rank, num_ranks, listener.port, num_threads}, run, pipe, old_mask);
    }
    if (pid < 0) {
      const int error = errno;
      stop_and_reap(children);
      throw UserError(cat("cannot start rank ", rank, ": ", std::strerror(error)));
    }
    pipe.close_write_end();
    children.push_back({pid, std::move(pipe)});
  }
  return children;
}

}  // namespace

int num_usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

int run_local_ranks(int num_ranks, const LocalRun& run) {
  check_single_threaded();
  const Listener listener = listen_on_free_port();
  const SignalBlock block;
  std::vector<Child> children = start_ranks(num_ranks, run, listener, block.old_mask());
  std::shared_ptr<void> store;
  try {
    store = run.serve_store(listener.fd, listener.port, num_ranks);
  } catch (const std::exception&) {
    stop_and_reap(children);
    throw;
  }
  return Watch(std::move(children), block.signals(), run).run();
}

}  // namespace automodel::launcher
