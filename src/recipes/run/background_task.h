#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <utility>

#include "core/error.h"

namespace automodel::recipes {

/// Work of a rank beside its training, on a thread of its own, one at a time. Destroying it waits
/// for the work.
class BackgroundTask final {
 public:
  /// No work may be under way.
  void start(std::function<void()> work) {
    AM_CHECK(!result_.valid(), "two tasks at once");
    result_ = std::async(std::launch::async, std::move(work));
  }

  /// Whether work was started that has ended and has not been waited for.
  bool has_ended() const {
    return result_.valid() &&
           result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  /// Whether work was started that has not been waited for.
  bool is_pending() const { return result_.valid(); }

  /// Waits for the work that was started; throws what it ended with.
  void wait() { result_.get(); }

 private:
  std::future<void> result_;
};

}  // namespace automodel::recipes
