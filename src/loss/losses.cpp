#include "loss/losses.h"

#include "core/text.h"

namespace automodel::loss {

std::vector<LossFinding> check_reduction(const std::string& reduction) {
  if (reduction == "sum") return {};
  return {{"reduction", cat("reduction must be 'sum': the sum is divided by the step's number of "
                            "label tokens, found '",
                            reduction, "'")}};
}

}  // namespace automodel::loss
