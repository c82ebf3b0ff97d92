#include "datasets/rows/order_checksum.h"

#include <algorithm>
#include <span>

namespace automodel::datasets {

OrderChecksum& OrderChecksum::add(int64_t number) {
  checksum_.add(std::as_bytes(std::span(&number, 1)));
  return *this;
}

OrderChecksum& OrderChecksum::add(const std::vector<int64_t>& numbers) {
  constexpr size_t kMostLookedAt = 4096;
  add(std::ssize(numbers));
  const size_t step = std::max<size_t>(numbers.size() / kMostLookedAt, 1);
  for (size_t i = 0; i < numbers.size(); i += step) add(numbers[i]);
  return *this;
}

}  // namespace automodel::datasets
