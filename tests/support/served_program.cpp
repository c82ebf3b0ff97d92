#include "support/served_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>

#include "core/clock.h"
#include "core/file.h"
#include "core/text.h"
#include "support/failing_calls.h"

namespace automodel::test {

namespace {

constexpr int kLongestMilliseconds = 600'000;  // only a run that hangs takes so long

void send(int socket, const void* bytes, size_t size) {
  if (::send(socket, bytes, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) {
    throw std::runtime_error("the served program is gone");
  }
}

/// The next number that the program sends.
int receive(int socket) {
  int number = 0;
  ssize_t size = 0;
  do {
    size = ::recv(socket, &number, sizeof(number), MSG_WAITALL);
  } while (size < 0 && errno == EINTR);
  if (size != sizeof(number)) throw std::runtime_error("the served program is gone");
  return number;
}

bool can_receive(int socket) {
  pollfd waited{socket, POLLIN, 0};
  int count = 0;
  do {
    count = ::poll(&waited, 1, kLongestMilliseconds);
  } while (count < 0 && errno == EINTR);
  return count > 0;
}

}  // namespace

ServedProgram::ServedProgram() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw std::runtime_error("no sockets");
  }
  socket_ = ends[0];
  const std::string binary = automodel_binary(), directory = source_file("");
  pid_ = ::fork();
  if (pid_ == 0) {
    ::fcntl(ends[1], F_SETFD, 0);
    ::setenv("LD_PRELOAD", failing_calls_library().c_str(), 1);
    ::setenv("FAILING_CALLS_SERVE", cat(ends[1]).c_str(), 1);
    ::setenv("HF_HUB_OFFLINE", "1", 1);
    ::setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
    if (::chdir(directory.c_str()) != 0) ::_exit(127);
    ::execl(binary.c_str(), binary.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
}

ServedProgram::~ServedProgram() {
  ::close(socket_);
  ::waitpid(pid_, nullptr, 0);
}

ProgramResult ServedProgram::run(const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& environment) {
  ProgramResult result;
  const std::string out = folder_.file("out"), err = folder_.file("err");
  const double begin = monotonic_seconds();
  std::vector<std::string> texts = {out, err, cat(arguments.size())};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  texts.push_back(cat("AUTOMODEL_STARTED=", begin));
  for (const std::string& variable : environment) {
    if (variable.starts_with("FAILING_CALLS_")) texts.push_back(variable);
  }
  std::string bytes;
  for (const std::string& text : texts) bytes.append(text).push_back('\0');
  const uint64_t size = bytes.size();
  send(socket_, &size, sizeof(size));
  send(socket_, bytes.data(), bytes.size());
  const pid_t pid = receive(socket_);
  const bool has_ended = can_receive(socket_);
  if (!has_ended) ::kill(-pid, SIGKILL);
  const int status = receive(socket_);
  if (!has_ended) {
    throw std::runtime_error(cat("hangs: ", join(arguments, " "), '\n', read_file(err)));
  }
  result.seconds = monotonic_seconds() - begin;
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  result.out = read_file(out);
  result.err = read_file(err);
  return result;
}

}  // namespace automodel::test
