#include <string>
#include <vector>

#include "cli/command_line.h"

int main(int argc, char** argv) {
  return automodel::cli::run_command_line(std::vector<std::string>(argv + 1, argv + argc));
}
