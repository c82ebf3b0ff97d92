#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/load.h"

namespace automodel::config {

struct Interpolated {
  std::string text;
  std::vector<std::string>
      problems;  ///< "Environment variable 'X' is not set (required by '${X}')."
};

/// Replaces ${VAR}, ${VAR,default}, ${oc.env:VAR}, ${oc.env:VAR,default} and $VAR; dots are part of
/// a name, `$5` stays. Text that comes from the environment is not looked at again.
Interpolated interpolate(std::string_view text, const Environment& environment);

}  // namespace automodel::config
