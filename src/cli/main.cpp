#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "core/system_limits.h"

/// The program ends without LibTorch's own end, which takes a third of the time that a short
/// command takes: every operator is unregistered. What is ours is closed when a command returns.
int main(int argc, char** argv) {
  // A file beyond the size that `ulimit -f` allows is an error of a write, which names the file.
  std::signal(SIGXFSZ, SIG_IGN);
  automodel::raise_open_files();
  const int status =
      automodel::cli::run_command_line(std::vector<std::string>(argv + 1, argv + argc));
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
#if defined(__SANITIZE_ADDRESS__)
  return status;  // leaks are looked for at an ordinary end
#else
  ::_exit(status);
#endif
}
