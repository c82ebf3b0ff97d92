#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/load.h"

namespace automodel::config {

struct Interpolated {
  std::string text;
  std::vector<std::string>
      problems;                 ///< "Environment variable 'X' is not set (required by '${X}')."
  bool has_open_brace = false;  ///< `${X` without an end, which is kept
};

/// Replaces ${VAR}, ${VAR,default}, ${oc.env:VAR}, ${oc.env:VAR,default} and $VAR; names may
/// contain dots, `$5` is kept. Text from the environment is not interpolated again.
Interpolated interpolate(std::string_view text, const Environment& environment);

}  // namespace automodel::config
