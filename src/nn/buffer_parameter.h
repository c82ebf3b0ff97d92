#pragma once

#include <string_view>

namespace automodel::nn {

/// Whether a parameter of this name (with or without its module's) stands for what the Python
/// models have as a buffer: the corrections of routers' scores. It is never trained, and mixed
/// precision keeps its dtype, since a policy casts parameters alone: rounded to bfloat16, a
/// correction would choose other experts.
inline bool is_buffer_parameter(std::string_view name) {
  constexpr std::string_view kCorrection = "e_score_correction_bias";
  return name.ends_with(kCorrection) &&
         (name.size() == kCorrection.size() || name[name.size() - kCorrection.size() - 1] == '.');
}

}  // namespace automodel::nn
