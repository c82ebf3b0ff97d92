#include "comm/device_groups.h"

#include <dlfcn.h>

#include "core/error.h"

namespace automodel::comm {

namespace {

class RoutedBackend final : public GroupBackend {
 public:
  RoutedBackend(std::shared_ptr<GroupBackend> on_cpu, std::shared_ptr<GroupBackend> on_device)
      : on_cpu_(std::move(on_cpu)), on_device_(std::move(on_device)) {}

  int rank() const override { return on_cpu_->rank(); }
  int size() const override { return on_cpu_->size(); }

  std::unique_ptr<BackendWork> all_reduce(at::Tensor tensor, ReduceOp op) override {
    return of(tensor).all_reduce(tensor, op);
  }
  std::unique_ptr<BackendWork> broadcast(at::Tensor tensor, int root) override {
    return of(tensor).broadcast(tensor, root);
  }
  std::unique_ptr<BackendWork> all_gather(at::Tensor out, const at::Tensor& in) override {
    return of(in).all_gather(std::move(out), in);
  }
  std::unique_ptr<BackendWork> reduce_scatter(at::Tensor out, const at::Tensor& in,
                                              ReduceOp op) override {
    return of(in).reduce_scatter(std::move(out), in, op);
  }
  std::unique_ptr<BackendWork> all_to_all(at::Tensor out, const at::Tensor& in,
                                          const ExchangeCounts& counts) override {
    return of(in).all_to_all(std::move(out), in, counts);
  }
  std::unique_ptr<BackendWork> send(const at::Tensor& tensor, int peer, int tag) override {
    return of(tensor).send(tensor, peer, tag);
  }
  std::unique_ptr<BackendWork> recv(at::Tensor tensor, int peer, int tag) override {
    return of(tensor).recv(tensor, peer, tag);
  }
  std::unique_ptr<BackendWork> barrier() override { return on_cpu_->barrier(); }
  void abort() override {
    on_device_->abort();
    on_cpu_->abort();
  }
  std::unique_ptr<StreamMark> mark(at::Device device) override {
    return device.is_cpu() ? on_cpu_->mark(device) : on_device_->mark(device);
  }

 private:
  GroupBackend& of(const at::Tensor& tensor) const {
    return tensor.is_cpu() ? *on_cpu_ : *on_device_;
  }

  std::shared_ptr<GroupBackend> on_cpu_;
  std::shared_ptr<GroupBackend> on_device_;
};

}  // namespace

std::shared_ptr<GroupBackend> connect_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                           const DevicePlace& place) {
  using Connect = GroupBackend*(c10d::Store*, const DevicePlace*);
  auto* connect = reinterpret_cast<Connect*>(::dlsym(RTLD_DEFAULT, "automodel_connect_nccl"));
  if (connect == nullptr) throw UnsupportedError("the CUDA library is not open or has no NCCL");
  return std::shared_ptr<GroupBackend>(connect(store.get(), &place));
}

std::shared_ptr<GroupBackend> route_by_device(std::shared_ptr<GroupBackend> on_cpu,
                                              std::shared_ptr<GroupBackend> on_device) {
  return std::make_shared<RoutedBackend>(std::move(on_cpu), std::move(on_device));
}

}  // namespace automodel::comm
