#include "trackers/variables.h"

#include <cstdlib>

#include "core/error.h"

namespace automodel::trackers {

Environment process_environment() {
  return [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
}

bool is_on(const Environment& environment, const char* name) {
  const std::string text = to_lower(environment(name));
  return text == "true" || text == "1" || text == "yes" || text == "on";
}

double seconds_in(const Environment& environment, const char* name, double fallback) {
  constexpr double kLongest = 86400;
  const std::string text = environment(name);
  if (text.empty()) return fallback;
  const auto seconds = parse_double(text);
  if (!seconds || !(*seconds > 0 && *seconds <= kLongest)) {
    throw UserError(cat(name, " takes seconds, found '", text, "'"));
  }
  return *seconds;
}

}  // namespace automodel::trackers
