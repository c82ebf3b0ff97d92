#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace automodel {

inline bool is_one_of(const std::vector<std::string>& values, const std::string& value) {
  return std::ranges::find(values, value) != values.end();
}

}  // namespace automodel
