#include "comm/gloo_backend.h"

#include <ATen/ATen.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

namespace automodel::comm {

namespace {

constexpr int kNumThreads = 2;
constexpr std::chrono::milliseconds kPeriod(500);  // of looking after the peers

c10d::ReduceOp to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kAvg:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
  }
  AM_CHECK(false);
}

class GlooBackend final : public GroupBackend {
 public:
  GlooBackend(c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo, std::function<bool()> has_lost_peer)
      : gloo_(std::move(gloo)), has_lost_peer_(std::move(has_lost_peer)) {}
  ~GlooBackend() override {
    // Its destructor would wait for the collective that was given up; the process is about to end.
    if (is_given_up_) gloo_.release();
  }
  GlooBackend(const GlooBackend&) = delete;
  GlooBackend& operator=(const GlooBackend&) = delete;

  int rank() const override { return gloo_->getRank(); }
  int size() const override { return gloo_->getSize(); }

  void all_reduce(at::Tensor& tensor, ReduceOp op) override {
    std::vector<at::Tensor> tensors{tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = to_c10d(op);
    await(gloo_->allreduce(tensors, options));
  }

  void broadcast(at::Tensor& tensor, int root) override {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    await(gloo_->broadcast(tensors, options));
  }

  void all_gather(at::Tensor& out, const at::Tensor& in) override {
    at::Tensor input = in.reshape({-1});
    at::Tensor output = out.view({-1});
    await(gloo_->_allgather_base(output, input));
  }

  void reduce_scatter(at::Tensor& out, const at::Tensor& in, ReduceOp op) override {
    at::Tensor input = in.reshape({-1});
    at::Tensor output = out.view({-1});
    c10d::ReduceScatterOptions options;
    options.reduceOp = to_c10d(op);
    await(gloo_->_reduce_scatter_base(output, input, options));
  }

  void barrier() override { await(gloo_->barrier()); }

 private:
  void await(const c10::intrusive_ptr<c10d::Work>& work) {
    bool has_lost_peer = false;
    while (!work->isCompleted()) {
      try {
        work->wait(kPeriod);
        return;
      } catch (const std::exception&) {
        if (work->isCompleted()) break;  // it failed, which the last wait tells
      }
      // A peer that ends well may do so a moment before we notice what it sent: ask twice.
      if (has_lost_peer_() && std::exchange(has_lost_peer, true)) {
        is_given_up_ = true;
        throw std::runtime_error("a peer is gone");
      }
    }
    work->wait();
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  std::function<bool()> has_lost_peer_;
  bool is_given_up_ = false;
};

}  // namespace

std::shared_ptr<gloo::transport::Device> open_gloo_device(const std::string& interface) {
  if (interface == "lo") return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  if (interface.empty()) return c10d::ProcessGroupGloo::createDefaultDevice();
  return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
}

std::shared_ptr<GroupBackend> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                           const std::shared_ptr<gloo::transport::Device>& device,
                                           const GlooPlace& place) {
  const auto timeout =
      std::chrono::milliseconds(static_cast<int64_t>(place.timeout_seconds * 1000.0));
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(device);
  options->threads = kNumThreads;
  return std::make_shared<GlooBackend>(
      c10::make_intrusive<c10d::ProcessGroupGloo>(store, place.rank, place.size, options),
      place.has_lost_peer);
}

}  // namespace automodel::comm
