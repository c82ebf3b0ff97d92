#include "recipes/commands/terminal_progress.h"

#include "loggers/console.h"

namespace automodel::recipes {

int with_terminal_progress(const std::string& name, const std::function<int()>& work,
                           const LongWork::HowFar& how_far) {
  loggers::ConsoleOptions options = loggers::ConsoleOptions::from_environment(0, 1);
  options.level = loggers::kErrorLevel;  // no lines of a log on stdout
  loggers::ConsoleReporter terminal(options);
  const LongWork told(&terminal, name, how_far);
  return work();
}

}  // namespace automodel::recipes
