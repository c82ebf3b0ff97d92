#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/text.h"
#include "recipes/runs.h"

namespace automodel::test {

/// Which faults are tried, from AUTOMODEL_FAILING_CALLS (scripts/failing_calls.sh): without it a
/// few calls with one kind of fault each; "all" every call with every kind; "each" every call with
/// one kind, in turn; "all:2/3" the second of three parts of it.
struct FaultExtent {
  bool has_all_calls = false;
  bool has_all_kinds = false;
  int64_t part = 1;  ///< of num_parts
  int64_t num_parts = 1;

  /// Whether the part has the call of this number, from 0.
  bool has(int64_t turn) const { return turn % num_parts == part - 1; }
};

inline FaultExtent fault_extent() {
  const char* variable = std::getenv("AUTOMODEL_FAILING_CALLS");
  if (variable == nullptr) return {};
  const std::vector<std::string> words = split(variable, ':');
  FaultExtent extent{.has_all_calls = true, .has_all_kinds = words[0] == "all"};
  if (words.size() == 2) {
    const std::vector<std::string> part = split(words[1], '/');
    extent.part = parse_int(part.at(0)).value();
    extent.num_parts = parse_int(part.at(1)).value();
  }
  return extent;
}

/// A spread with its name in the tests.
struct NamedSpread {
  const char* name;
  Spread spread;
};

/// What the test that is running has found wrong so far.
inline int num_failures() {
  return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
}

}  // namespace automodel::test
