#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace automodel::report {

/// Writes one page about the runs in these folders. Returns 0; throws UserError for a folder that
/// is no run's, InputError for a file that cannot be read.
int write_report(const std::vector<std::string>& folders, std::ostream& out);

}  // namespace automodel::report
