#pragma once

#include <signal.h>
#include <unistd.h>

#include <cstdint>

#include "comm/ranks.h"

namespace automodel::comm {

/// Longer than anything but a hang takes, on a machine that is busy with other work too.
inline constexpr double kHangSeconds = 120;

/// Ranks whose timeouts and whose launcher wait twice that long: what ends them earlier has told
/// them of a failure at once, however slow the machine is.
inline RanksOptions patient(RanksOptions options = {}) {
  options.timeout_seconds = 2 * kHangSeconds;
  options.grace_seconds = 2 * kHangSeconds;
  return options;
}

/// This rank, which will be stopped, is killed once the other ranks have ended.
inline void end_after_peers() {
  const pid_t self = ::getpid(), launcher = ::getppid();
  const std::string peers = cat("/proc/", launcher, "/task/", launcher, "/children");
  if (::fork() == 0) {
    while (path_exists(peers) && trim(read_file(peers)) != cat(self)) ::usleep(10'000);
    ::kill(self, SIGKILL);
    ::_exit(0);
  }
}

/// Stops this rank, as a machine that hangs.
inline void hang() {
  end_after_peers();
  ::raise(SIGSTOP);
}

}  // namespace automodel::comm
