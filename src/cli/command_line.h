#pragma once

#include <string>
#include <vector>

namespace automodel::cli {

/// Runs the command that the arguments (without the program's name) name and returns the process's
/// exit status. Prints errors to stderr; nothing is thrown.
int run_command_line(std::vector<std::string> arguments);

}  // namespace automodel::cli
