#pragma once

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdint>

namespace automodel::test {

/// Counts the bytes that this thread's tensors take while it is in force.
class AllocationCounter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t live() const { return live_; }
  int64_t peak() const { return peak_; }

 private:
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

}  // namespace automodel::test
