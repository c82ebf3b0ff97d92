#include "support/failing_calls.h"

#include <cstdlib>

#include "core/file.h"
#include "core/text.h"

namespace automodel::test {

std::string failing_calls_library() {
  if (const char* binary = std::getenv("AUTOMODEL_BINARY")) {
    return path_join(parent_path(binary), "failing_calls.so");
  }
  return "failing_calls.so";
}

std::vector<std::string> FailingCalls::environment() const {
  std::vector<std::string> environment = {
      cat("LD_PRELOAD=", failing_calls_library()), cat("FAILING_CALLS_FOLDER=", folder),
      // The address sanitizer wants to be the first library otherwise.
      "ASAN_OPTIONS=verify_asan_link_order=0"};
  if (rank) environment.push_back(cat("FAILING_CALLS_RANK=", *rank));
  if (at > 0) environment.push_back(cat("FAILING_CALLS_AT=", at));
  if (!action.empty()) environment.push_back(cat("FAILING_CALLS_DO=", action));
  if (!log.empty()) environment.push_back(cat("FAILING_CALLS_LOG=", log));
  if (has_reads) environment.push_back("FAILING_CALLS_READS=1");
  return environment;
}

std::vector<CountedCall> read_calls(const std::string& log) {
  std::vector<CountedCall> calls;
  if (!path_exists(log)) return calls;
  for (const std::string& line : split(read_file(log), '\n')) {
    const std::vector<std::string> words = split(line, ' ');
    if (words.size() != 4) continue;
    calls.push_back({static_cast<int>(parse_int(words[0]).value_or(-1)),
                     parse_int(words[1]).value_or(0), words[2], words[3]});
  }
  return calls;
}

}  // namespace automodel::test
