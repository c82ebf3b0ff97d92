#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "support/temporary_directory.h"

namespace automodel::test {

/// What a program that ended left behind.
struct ProgramResult {
  int status = 0;      ///< exit status, 128 + n when signal n ended it
  std::string out;     ///< what it wrote to stdout
  std::string err;     ///< what it wrote to stderr
  double seconds = 0;  ///< from its start to its end
};

/// A running program, with its output going to files of its own. Killed, with its process group,
/// when it is still running at the end.
class Program final {
 public:
  /// Starts `arguments[0]` in the repository's folder; `environment` holds NAME=value.
  explicit Program(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  /// Waits for the end. `usage`: what it and those that it waited for have used, where asked for.
  ProgramResult wait(rusage* usage = nullptr);

 private:
  TemporaryDirectory folder_;
  pid_t pid_ = 0;
  double begin_seconds_ = 0;
};

/// Runs a program to its end.
ProgramResult run_program(const std::vector<std::string>& arguments,
                          const std::vector<std::string>& environment = {});

/// The path of the automodel program that was built with the tests.
std::string automodel_binary();

}  // namespace automodel::test
