#include "recipes/read/loss_settings.h"

#include "core/text.h"

namespace automodel::recipes {

std::vector<LossFinding> check_reduction(const std::string& reduction) {
  if (reduction == "sum") return {};
  return {{"reduction", cat("reduction must be 'sum': the sum is divided by the step's number of "
                            "label tokens, found '",
                            reduction, "'")}};
}

}  // namespace automodel::recipes
