#pragma once

#include <cstdint>
#include <vector>

#include "core/checksum.h"

namespace automodel::datasets {

/// A checksum of which rows lie where, of numbers that say so.
class OrderChecksum final {
 public:
  OrderChecksum& add(int64_t number);
  /// Adds the size of a list, and its numbers; of a long list some thousands of them, spread
  /// evenly.
  OrderChecksum& add(const std::vector<int64_t>& numbers);

  uint64_t value() const { return checksum_.value(); }

 private:
  Checksum checksum_;
};

}  // namespace automodel::datasets
