#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "comm/device_groups.h"
#include "comm/nccl_environment.h"
#include "comm/reduce_op.h"

namespace automodel::comm {

namespace {

/// Runs on the group's own stream; waiting is the present stream's.
class NcclWork final : public BackendWork {
 public:
  NcclWork(c10::intrusive_ptr<c10d::Work> work, std::vector<at::Tensor> tensors)
      : work_(std::move(work)), tensors_(std::move(tensors)) {}

  void wait() override {
    work_->wait();
    tensors_.clear();  // what the present stream does with their memory comes behind
  }
  bool is_done() override { return work_->isCompleted(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::vector<at::Tensor> tensors_;  // alive until the operation has been ordered
};

class CudaMark final : public StreamMark {
 public:
  explicit CudaMark(c10::DeviceIndex device) : device_(device) {}
  void set() override { event_.record(c10::cuda::getCurrentCUDAStream(device_)); }
  bool is_reached() override { return event_.query(); }

 private:
  c10::DeviceIndex device_;
  at::cuda::CUDAEvent event_;
};

class NcclBackend final : public GroupBackend {
 public:
  NcclBackend(c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl, int device)
      : nccl_(std::move(nccl)), device_(at::kCUDA, static_cast<c10::DeviceIndex>(device)) {}
  /// Gives the communicators up without the peers, who may be gone.
  ~NcclBackend() override {
    try {
      abort();
    } catch (const std::exception&) {
      // Its memory stays until the process ends, which is near.
    }
  }
  NcclBackend(const NcclBackend&) = delete;
  NcclBackend& operator=(const NcclBackend&) = delete;

  int rank() const override { return nccl_->getRank(); }
  int size() const override { return nccl_->getSize(); }

  std::unique_ptr<BackendWork> all_reduce(at::Tensor tensor, ReduceOp op) override {
    std::vector<at::Tensor> tensors{tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = to_c10d(op);
    return keep(nccl_->allreduce(tensors, options), {tensor});
  }

  std::unique_ptr<BackendWork> broadcast(at::Tensor tensor, int root) override {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return keep(nccl_->broadcast(tensors, options), {tensor});
  }

  std::unique_ptr<BackendWork> all_gather(at::Tensor out, const at::Tensor& in) override {
    at::Tensor input = in.view({-1}), output = out.view({-1});
    return keep(nccl_->_allgather_base(output, input), {out, in});
  }

  std::unique_ptr<BackendWork> reduce_scatter(at::Tensor out, const at::Tensor& in,
                                              ReduceOp op) override {
    at::Tensor input = in.view({-1}), output = out.view({-1});
    c10d::ReduceScatterOptions options;
    options.reduceOp = to_c10d(op);
    return keep(nccl_->_reduce_scatter_base(output, input, options), {out, in});
  }

  std::unique_ptr<BackendWork> all_to_all(at::Tensor out, const at::Tensor& in,
                                          const ExchangeCounts& counts) override {
    at::Tensor input = in, output = out;
    std::vector<int64_t> out_counts = counts.out, in_counts = counts.in;
    return keep(nccl_->alltoall_base(output, input, out_counts, in_counts), {out, in});
  }

  std::unique_ptr<BackendWork> send(const at::Tensor& tensor, int peer, int tag) override {
    std::vector<at::Tensor> tensors{tensor};
    return keep(nccl_->send(tensors, peer, tag), {tensor});
  }

  std::unique_ptr<BackendWork> recv(at::Tensor tensor, int peer, int tag) override {
    std::vector<at::Tensor> tensors{tensor};
    return keep(nccl_->recv(tensors, peer, tag), {tensor});
  }

  std::unique_ptr<BackendWork> barrier() override {
    c10d::BarrierOptions options;
    options.device = device_;
    return keep(nccl_->barrier(options), {});
  }

  void abort() override {
    if (!is_aborted_.exchange(true)) nccl_->abort();
  }

  std::unique_ptr<StreamMark> mark(at::Device device) override {
    return std::make_unique<CudaMark>(device.index());
  }

 private:
  static std::unique_ptr<BackendWork> keep(c10::intrusive_ptr<c10d::Work> work,
                                           std::vector<at::Tensor> tensors) {
    return std::make_unique<NcclWork>(std::move(work), std::move(tensors));
  }

  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl_;
  at::Device device_;
  std::atomic<bool> is_aborted_ = false;
};

/// c10d's threads leave the watching to us; the program says so before it has threads.
void check_environment() {
  for (const char* name : kNcclSwitches) {
    if (std::getenv(name) != nullptr) continue;
    throw UserError(cat(name, " is not set: start `automodel`, not `automodel-main`"));
  }
}

}  // namespace

}  // namespace automodel::comm

/// What connect_nccl() looks for; the caller owns the result.
extern "C" automodel::comm::GroupBackend* automodel_connect_nccl(
    c10d::Store* store, const automodel::comm::DevicePlace* place) {
  automodel::comm::check_environment();
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout =
      std::chrono::milliseconds(static_cast<int64_t>(place->timeout_seconds * 1000.0));
  options->group_name = place->name;
  auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(
      c10::intrusive_ptr<c10d::Store>::reclaim_copy(store), place->rank, place->size, options);
  return new automodel::comm::NcclBackend(std::move(nccl), place->device);
}
