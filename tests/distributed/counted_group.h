#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "comm/process_group.h"

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
  using Started = std::unique_ptr<comm::BackendWork>;

  CountedBackend(comm::ProcessGroup inner, std::shared_ptr<CallCounts> counts)
      : inner_(std::move(inner)), counts_(std::move(counts)) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Started all_reduce(at::Tensor tensor, comm::ReduceOp op) override {
    count("all_reduce", tensor);
    return started(inner_.start_all_reduce(tensor, op));
  }
  Started broadcast(at::Tensor tensor, int root) override {
    count("broadcast", tensor);
    inner_.broadcast(tensor, root);
    return nullptr;
  }
  Started all_gather(at::Tensor out, const at::Tensor& in) override {
    count("all_gather", out);
    return started(inner_.start_all_gather(out, in));
  }
  Started reduce_scatter(at::Tensor out, const at::Tensor& in, comm::ReduceOp op) override {
    count("reduce_scatter", in);
    return started(inner_.start_reduce_scatter(out, in, op));
  }
  Started all_to_all(at::Tensor out, const at::Tensor& in,
                     const comm::ExchangeCounts& counts) override {
    count("all_to_all", in);
    return started(inner_.start_all_to_all(out, in, counts));
  }
  Started send(const at::Tensor& tensor, int peer, int tag) override {
    count("send", tensor);
    return started(inner_.start_send(tensor, peer, tag));
  }
  Started recv(at::Tensor tensor, int peer, int tag) override {
    count("recv", tensor);
    return started(inner_.start_recv(tensor, peer, tag));
  }
  Started barrier() override {
    inner_.barrier();
    return nullptr;
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

  static Started started(comm::Work work) { return std::make_unique<Waiting>(std::move(work)); }

  void count(const char* name, const at::Tensor& whole) {
    CallCount& found = (*counts_)[name];
    found.calls += 1;
    found.bytes += static_cast<int64_t>(whole.nbytes());
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
