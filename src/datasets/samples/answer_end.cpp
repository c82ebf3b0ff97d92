#include "datasets/samples/answer_end.h"

#include "datasets/samples/dataset.h"

namespace automodel::datasets {

bool ends_with_special(const std::vector<int64_t>& labels, const TextEncoder& encoder) {
  constexpr int kNumEnding = 2;
  int num_seen = 0;
  for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
    if (*label == kIgnoreIndex) continue;
    if (encoder.is_special(*label)) return true;
    if (++num_seen == kNumEnding) return false;
  }
  return false;
}

}  // namespace automodel::datasets
