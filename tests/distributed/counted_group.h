#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "comm/groups/group_backend.h"
#include "comm/groups/process_group.h"

namespace automodel::distributed {

/// Calls of one collective and the bytes of their whole tensors.
struct CallCount {
  int64_t calls = 0;
  int64_t bytes = 0;

  bool operator==(const CallCount&) const = default;
};

/// By the collective's name: "all_reduce", "all_gather", "reduce_scatter".
using CallCounts = std::map<std::string, CallCount>;

/// Does what a group does and writes down what it was asked for.
class CountedBackend final : public comm::GroupBackend {
 public:
  CountedBackend(comm::ProcessGroup inner, std::shared_ptr<CallCounts> counts)
      : inner_(std::move(inner)), counts_(std::move(counts)) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::unique_ptr<comm::BackendWork> start(const comm::Collective& collective) override {
    count(collective);
    return std::make_unique<Waiting>(inner_.start(collective));
  }

 private:
  class Waiting final : public comm::BackendWork {
   public:
    explicit Waiting(comm::Work work) : work_(std::move(work)) {}
    void wait() override { work_.wait(); }
    bool is_done() override { return work_.is_done(); }

   private:
    comm::Work work_;
  };

  /// The whole tensors: what a gather makes, and what every other operation begins with.
  void count(const comm::Collective& collective) {
    if (collective.kind == comm::CollectiveKind::kBarrier) return;
    const bool is_result = collective.kind == comm::CollectiveKind::kAllGather ||
                           collective.kind == comm::CollectiveKind::kRecv;
    CallCount& found = (*counts_)[std::string(comm::collective_name(collective.kind))];
    found.calls += 1;
    found.bytes += static_cast<int64_t>((is_result ? collective.out : collective.in).nbytes());
  }

  comm::ProcessGroup inner_;
  std::shared_ptr<CallCounts> counts_;
};

/// A group and what was asked of it since it was made or cleared.
struct CountedGroup {
  explicit CountedGroup(const comm::ProcessGroup& inner)
      : group(inner.name(), std::make_shared<CountedBackend>(inner, counts)) {}

  std::shared_ptr<CallCounts> counts = std::make_shared<CallCounts>();
  comm::ProcessGroup group;
};

/// "all_reduce 2 of 40 bytes, ..."
inline std::string text_of(const CallCounts& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    text += cat(text.empty() ? "" : ", ", name, " ", count.calls, " of ", count.bytes, " bytes");
  }
  return text;
}

}  // namespace automodel::distributed
