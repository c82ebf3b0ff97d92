#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace automodel::report {

/// The arguments of `automodel watch`.
struct WatchOptions {
  std::vector<std::string> folders;
  bool is_once = false;  ///< print the picture as it is now, and end
};

/// Shows runs while they train, until all have ended: on a terminal a picture that is drawn anew
/// once a second at most, elsewhere a line a step. Its size is the terminal's, else COLUMNS x
/// LINES, else 80 x 24. Returns 0; throws UserError for a folder that is no run's.
int watch(const WatchOptions& options, std::ostream& out);

}  // namespace automodel::report
