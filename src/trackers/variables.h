#pragma once

#include <functional>
#include <string>

namespace automodel::trackers {

/// A variable of the environment, "" when it is not set.
using Environment = std::function<std::string(const char* name)>;

/// The environment of this process.
Environment process_environment();

/// Whether a variable says yes: true, yes, on or 1.
bool is_on(const Environment& environment, const char* name);

/// The seconds that a variable says, up to a day; `fallback` when it is not set. Throws UserError
/// for anything else.
double seconds_in(const Environment& environment, const char* name, double fallback);

}  // namespace automodel::trackers
