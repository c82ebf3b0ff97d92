#include "comm/device/device_groups.h"

#include <dlfcn.h>

#include "comm/groups/group_backend.h"
#include "core/error.h"

namespace automodel::comm {

namespace {

class RoutedBackend final : public GroupBackend {
 public:
  RoutedBackend(std::shared_ptr<GroupBackend> on_cpu, std::shared_ptr<GroupBackend> on_device)
      : on_cpu_(std::move(on_cpu)), on_device_(std::move(on_device)) {}

  int rank() const override { return on_cpu_->rank(); }
  int size() const override { return on_cpu_->size(); }

  std::unique_ptr<BackendWork> start(const Collective& collective) override {
    return of(collective.device()).start(collective);
  }
  void abort() override {
    on_device_->abort();
    on_cpu_->abort();
  }
  std::unique_ptr<StreamMark> mark(at::Device device) override { return of(device).mark(device); }

 private:
  GroupBackend& of(at::Device device) const { return device.is_cpu() ? *on_cpu_ : *on_device_; }

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
