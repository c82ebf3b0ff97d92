#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string_view>

#include "comm/groups/collective.h"

namespace automodel::comm {

/// Operations of one kind that a rank has started.
struct Moved {
  int64_t num_operations = 0;
  int64_t bytes = 0;  ///< of the whole tensors: a gather's result, a reduction's input
};

/// By collective_name(); kinds that were not used are absent.
using Traffic = std::map<std::string_view, Moved>;

/// Counts what this rank starts, whichever group and backend it is for. Any thread may count.
class TrafficMeter final {
 public:
  void add(const Collective& collective);
  Traffic total() const;

 private:
  struct Counted {
    std::atomic<int64_t> num_operations = 0;
    std::atomic<int64_t> bytes = 0;
  };
  std::array<Counted, kNumCollectiveKinds> counted_;
};

}  // namespace automodel::comm
