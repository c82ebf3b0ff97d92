#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "support/http_server.h"

namespace automodel::test {

/// What a server of the tests does instead of answering, which tests change while it runs.
class ServerFaults {
 public:
  /// The next requests are answered so, one each.
  void add_faults(const std::vector<HttpReply>& faults) {
    const std::lock_guard lock(mutex_);
    faults_.insert(faults_.end(), faults.begin(), faults.end());
  }
  /// Every request from now on, until nothing.
  void set_fault(std::optional<HttpReply> fault) {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
  }

 protected:
  /// What a request is answered in place of an answer; nothing when it gets one. `mutex_` is held.
  std::optional<HttpReply> next_fault() {
    if (fault_ || faults_.empty()) return fault_;
    const HttpReply fault = faults_.front();
    faults_.pop_front();
    return fault;
  }
  /// Whether a request says what demand() wants. `mutex_` is held.
  bool is_allowed(const HttpRequest& request) const {
    return authorization_.empty() || request.authorization == authorization_;
  }
  /// From now on requests need this field Authorization.
  void demand_field(const std::string& authorization) {
    const std::lock_guard lock(mutex_);
    authorization_ = authorization;
  }

  mutable std::mutex mutex_;

 private:
  std::deque<HttpReply> faults_;
  std::optional<HttpReply> fault_;
  std::string authorization_;
};

}  // namespace automodel::test
