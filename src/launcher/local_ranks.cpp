#include "launcher/local_ranks.h"

#include <arpa/inet.h>
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
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/clock.h"
#include "core/error.h"

namespace automodel::launcher {

namespace {

constexpr double kGraceSeconds = 5.0;
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

/// Runs in a fresh child; never returns.
[[noreturn]] void be_rank(const LocalRank& place, const LocalRun& run, pid_t parent,
                          const sigset_t& old_mask, int listening_fd) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(128 + SIGKILL);  // the launcher was gone before the prctl
  ::close(listening_fd);
  ::sigprocmask(SIG_SETMASK, &old_mask, nullptr);
  const int status = run.rank_main(place);
  std::fflush(nullptr);
  ::_exit(status);
}

struct Child {
  pid_t pid = 0;
  bool is_running = true;
};

void signal_all(const std::vector<Child>& children, int signal) {
  for (const Child& child : children) {
    if (child.is_running) ::kill(child.pid, signal);
  }
}

/// Waits for children and passes signals on until all have ended.
class Watch final {
 public:
  Watch(std::vector<Child> children, const sigset_t& signals)
      : children_(std::move(children)), signals_(signals) {}

  int run() {
    while (num_running() > 0) {
      const timespec timeout{0, 200'000'000};
      const int signal = ::sigtimedwait(&signals_, nullptr, &timeout);
      if (signal > 0 && signal != SIGCHLD) signal_all(children_, signal);
      reap();
      if (deadline_ > 0 && monotonic_seconds() > deadline_) {
        signal_all(children_, SIGKILL);
        deadline_ = 0;
      }
    }
    return result_;
  }

 private:
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
        take_status(static_cast<int>(rank), status);
      }
    }
  }

  void take_status(int rank, int status) {
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code == 0 || has_failed_) return;
    // A rank that saved after a preemption signal ends well; so do the others, a moment later.
    if (code == static_cast<int>(ExitCode::kPreempted)) {
      result_ = code;
      return;
    }
    has_failed_ = true;
    result_ = code;
    if (WIFSIGNALED(status)) {
      std::fprintf(stderr, "rank %d (pid %d) was killed by signal %d (%s); stopping the others\n",
                   rank, static_cast<int>(children_[static_cast<size_t>(rank)].pid),
                   WTERMSIG(status), ::strsignal(WTERMSIG(status)));
    }
    // Survivors notice the loss in their next collective and leave by themselves, with its cause.
    deadline_ = monotonic_seconds() + kGraceSeconds;
  }

  std::vector<Child> children_;
  sigset_t signals_;
  int result_ = 0;
  bool has_failed_ = false;
  double deadline_ = 0;
};

}  // namespace

int num_usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

int run_local_ranks(int num_ranks, const LocalRun& run) {
  const Listener listener = listen_on_free_port();
  sigset_t signals, old_mask;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGCHLD);
  for (const int signal : kForwarded) ::sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, &old_mask);
  const pid_t parent = ::getpid();
  const int num_threads = std::max(1, num_usable_cores() / num_ranks);
  std::fflush(nullptr);
  std::vector<Child> children;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      be_rank({rank, num_ranks, listener.port, num_threads}, run, parent, old_mask, listener.fd);
    }
    if (pid < 0) {
      const int error = errno;
      signal_all(children, SIGKILL);
      throw UserError(cat("cannot start rank ", rank, ": ", std::strerror(error)));
    }
    children.push_back({pid, true});
  }
  const std::shared_ptr<void> store = run.serve_store(listener.fd, listener.port, num_ranks);
  const int result = Watch(std::move(children), signals).run();
  ::sigprocmask(SIG_SETMASK, &old_mask, nullptr);
  return result;
}

}  // namespace automodel::launcher
