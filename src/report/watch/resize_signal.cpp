#include "report/watch/resize_signal.h"

#include <pthread.h>

#include <algorithm>
#include <ctime>

#include "core/clock.h"

namespace automodel::report {

ResizeSignal::ResizeSignal() {
  sigemptyset(&signal_);
  sigaddset(&signal_, SIGWINCH);
  pthread_sigmask(SIG_BLOCK, &signal_, &before_);
}

ResizeSignal::~ResizeSignal() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool ResizeSignal::wait(double seconds) const {
  const double end = monotonic_seconds() + seconds;
  while (true) {
    const double left = std::max(0.0, end - monotonic_seconds());
    timespec time{};
    time.tv_sec = static_cast<time_t>(left);
    time.tv_nsec = static_cast<long>((left - static_cast<double>(time.tv_sec)) * 1e9);
    if (sigtimedwait(&signal_, nullptr, &time) == SIGWINCH) return true;
    if (left <= 0) return false;  // else another signal ended the wait
  }
}

}  // namespace automodel::report
