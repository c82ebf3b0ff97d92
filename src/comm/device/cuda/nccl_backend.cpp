#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "comm/device/device_groups.h"
#include "comm/device/nccl_environment.h"
#include "comm/groups/group_backend.h"
#include "comm/network/c10d_collective.h"

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
  bool is_reached() override {
    // A thread without a device of its own would make a context on the first one.
    const c10::cuda::CUDAGuard guard(device_);
    return event_.query();
  }

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

  std::unique_ptr<BackendWork> start(const Collective& collective) override {
    c10::intrusive_ptr<c10d::Work> work = start_c10d(*nccl_, collective, device_);
    return std::make_unique<NcclWork>(std::move(work),
                                      std::vector<at::Tensor>{collective.out, collective.in});
  }

  void abort() override {
    if (!is_aborted_.exchange(true)) nccl_->abort();
  }

  std::unique_ptr<StreamMark> mark(at::Device device) override {
    return std::make_unique<CudaMark>(device.index());
  }

 private:
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
