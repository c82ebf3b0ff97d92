#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>

namespace automodel::test {

/// Bytes of CPU tensors that this thread allocates and frees while it lives.
class MemoryLedger final {
 public:
  MemoryLedger()
      : book_(std::make_shared<Book>()), guard_(c10::DebugInfoKind::PROFILER_STATE, book_) {}

  int64_t held() const { return book_->held; }  ///< since the start; may be negative
  int64_t peak() const { return book_->peak; }

 private:
  struct Book final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
      held += size;
      peak = std::max(peak, held);
    }
    bool memoryProfilingEnabled() const override { return true; }

    int64_t held = 0;
    int64_t peak = 0;
  };

  std::shared_ptr<Book> book_;
  c10::DebugInfoGuard guard_;
};

}  // namespace automodel::test
