#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace automodel::test {

/// The library of tests/support/shim, which lies beside the program and the tests.
std::string failing_calls_library();

/// What the preloaded library of tests/support/shim does to a program: see there.
struct FailingCalls {
  std::string folder;       ///< calls on paths in it count
  std::optional<int> rank;  ///< whose calls count; absent: everybody's
  int64_t at = 0;           ///< the call that is met; 0: every one
  std::string action = "";  ///< "fail:5", "full", "kill", "torn", "signal:15", "slow:20"; "": none
  std::string log = "";     ///< file to which calls are written
  bool has_reads = false;   ///< reads count too

  /// NAME=value, for a Program.
  std::vector<std::string> environment() const;
};

/// A line of the log.
struct CountedCall {
  int rank = 0;
  int64_t number = 0;
  std::string call;
  std::string path;
};

/// The calls of a log, in their order.
std::vector<CountedCall> read_calls(const std::string& log);

}  // namespace automodel::test
