#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line.h"
#include "core/error.h"

/// The program ends without LibTorch's own end, which takes a third of the time that a short
/// command takes: every operator is unregistered. What is ours is closed when a command returns.
int main(int argc, char** argv) {
  // A file beyond the size that `ulimit -f` allows is an error of a write, which names the file.
  std::signal(SIGXFSZ, SIG_IGN);
  int status = automodel::cli::run_command_line(std::vector<std::string>(argv + 1, argv + argc));
  std::cout.flush();
  const bool is_cut = !std::cout.good() || std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (is_cut && status == 0) {  // else the command has said so
    std::cerr << "cannot write all of the output to standard output\n";
    // A run's results are its checkpoints and records, other commands' what they print.
    const bool is_run = argc > 1 && std::string_view(argv[1]) == "run";
    if (!is_run) status = static_cast<int>(automodel::ExitCode::kInput);
  }
  std::cerr.flush();
  std::fflush(nullptr);
#if defined(__SANITIZE_ADDRESS__)
  return status;  // leaks are looked for at an ordinary end
#else
  ::_exit(status);
#endif
}
