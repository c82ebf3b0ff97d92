#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/reporter.h"

namespace automodel::test {

/// The text of the `Error` that a call throws, "no error" when it throws none; other exceptions
/// pass.
template <typename Error, typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Keeps warnings, drops the rest.
class Warnings final : public Reporter {
 public:
  void info(std::string_view) override {}
  void warning(std::string_view text) override { texts.emplace_back(text); }
  void error(std::string_view text) override { errors.emplace_back(text); }
  std::vector<std::string> texts, errors;
};

}  // namespace automodel::test
