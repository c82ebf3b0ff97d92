#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "support/program.h"

namespace automodel::test {

/// The automodel program, loaded once and forked in front of its main() for every run: loading
/// and unloading LibTorch is three quarters of what a small run costs. Everything behind it is as
/// in a program that was started by itself. Not for several threads at once.
class ServedProgram final {
 public:
  ServedProgram();
  ~ServedProgram();
  ServedProgram(const ServedProgram&) = delete;
  ServedProgram& operator=(const ServedProgram&) = delete;

  /// Runs it to its end, as run_program() does; `environment` may hold what FailingCalls says. A
  /// run that has not ended within ten minutes is killed and throws std::runtime_error.
  ProgramResult run(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment = {});

 private:
  TemporaryDirectory folder_;
  int socket_ = -1;
  pid_t pid_ = 0;
};

}  // namespace automodel::test
