#include "datasets/samples/answer_end.h"

#include <algorithm>
#include <ranges>

#include "datasets/samples/dataset.h"

namespace automodel::datasets {

bool ends_with_special(const std::vector<int64_t>& labels, const TextEncoder& encoder) {
  constexpr int kNumEnding = 2;
  int num_seen = 0;
  for (const int64_t label : labels | std::views::reverse) {
    if (label == kIgnoreIndex) continue;
    if (encoder.is_special(label)) return true;
    if (++num_seen == kNumEnding) return false;
  }
  return false;
}

}  // namespace automodel::datasets
