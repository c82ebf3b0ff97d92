#include "recipes/run/last_words.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/error.h"

namespace automodel::recipes {

namespace {

// A handler can use static storage only.
volatile sig_atomic_t last_words_pipe = -1;

void pass_on(int signal) {
  const int before = errno;
  const auto number = static_cast<unsigned char>(signal);
  [[maybe_unused]] const ssize_t count = ::write(last_words_pipe, &number, 1);
  errno = before;
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

LastWords::LastWords(std::vector<int> signals, std::function<void(int signal)> tell)
    : signals_(std::move(signals)) {
  std::erase_if(signals_, is_ignored);
  AM_CHECK(::pipe2(pipe_, O_CLOEXEC) == 0, "no pipe: errno ", errno);
  last_words_pipe = pipe_[1];
  thread_ = std::thread([this, tell = std::move(tell)] { listen(tell); });
  for (const int number : signals_) {
    struct sigaction action {};
    action.sa_handler = pass_on;
    action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
    ::sigaction(number, &action, nullptr);
  }
}

LastWords::~LastWords() {
  for (const int number : signals_) ::signal(number, SIG_DFL);
  const unsigned char no_signal = 0;
  [[maybe_unused]] const ssize_t count = ::write(pipe_[1], &no_signal, 1);
  thread_.join();
  ::close(pipe_[0]);
  ::close(pipe_[1]);
}

void LastWords::listen(const std::function<void(int signal)>& tell) const {
  unsigned char number = 0;
  while (::read(pipe_[0], &number, 1) < 0 && errno == EINTR) {
  }
  if (number == 0) return;
  try {
    tell(number);
  } catch (const std::exception&) {  // the end is not to wait for words
  }
  ::signal(number, SIG_DFL);
  if (::getpid() == 1) ::_exit(128 + number);  // which no signal ends by default: a container's
  ::kill(::getpid(), number);
  ::pause();  // nothing else ends this thread; the signal does
}

}  // namespace automodel::recipes
