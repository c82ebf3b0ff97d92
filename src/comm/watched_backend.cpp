#include "comm/watched_backend.h"

#include <utility>

#include "comm/device_errors.h"
#include "comm/tcp_store.h"
#include "core/text.h"

namespace automodel::comm {

namespace {

class WatchedWork final : public BackendWork {
 public:
  /// `followed`: null where nothing is left to do once the wait is over.
  WatchedWork(std::unique_ptr<BackendWork> inner, std::shared_ptr<FailureWatch> watch,
              WatchedCall call, std::shared_ptr<DeviceWatch> device_watch,
              std::shared_ptr<DeviceWatch::Followed> followed)
      : inner_(std::move(inner)),
        watch_(std::move(watch)),
        call_(std::move(call)),
        device_watch_(std::move(device_watch)),
        followed_(std::move(followed)) {}
  ~WatchedWork() override { watch_->leave(call_); }
  WatchedWork(const WatchedWork&) = delete;
  WatchedWork& operator=(const WatchedWork&) = delete;

  bool is_done() override { return inner_->is_done(); }

  void wait() override {
    watch_->begin_wait(call_);
    try {
      inner_->wait();
      if (followed_ != nullptr) device_watch_->leave(followed_);
    } catch (const std::exception& error) {
      if (device_failure(error)) throw;  // this rank's own
      throw watch_->explain(call_, reason_of(error.what()));
    }
    watch_->leave(call_);
  }

 private:
  std::unique_ptr<BackendWork> inner_;
  std::shared_ptr<FailureWatch> watch_;
  WatchedCall call_;
  std::shared_ptr<DeviceWatch> device_watch_;
  std::shared_ptr<DeviceWatch::Followed> followed_;
};

class WatchedBackend final : public GroupBackend {
 public:
  WatchedBackend(std::shared_ptr<GroupBackend> inner, std::shared_ptr<FailureWatch> watch,
                 WatchedGroup group, std::shared_ptr<DeviceWatch> device_watch)
      : inner_(std::move(inner)),
        watch_(std::move(watch)),
        group_(std::move(group)),
        device_watch_(std::move(device_watch)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void abort() override { inner_->abort(); }
  std::unique_ptr<StreamMark> mark(at::Device device) override { return inner_->mark(device); }

  std::unique_ptr<BackendWork> all_reduce(at::Tensor tensor, ReduceOp op) override {
    return watched("all_reduce", tensor, [&] { return inner_->all_reduce(std::move(tensor), op); });
  }
  std::unique_ptr<BackendWork> broadcast(at::Tensor tensor, int root) override {
    return watched("broadcast", tensor, [&] { return inner_->broadcast(std::move(tensor), root); });
  }
  std::unique_ptr<BackendWork> all_gather(at::Tensor out, const at::Tensor& in) override {
    return watched("all_gather", in, [&] { return inner_->all_gather(std::move(out), in); });
  }
  std::unique_ptr<BackendWork> reduce_scatter(at::Tensor out, const at::Tensor& in,
                                              ReduceOp op) override {
    return watched("reduce_scatter", in,
                   [&] { return inner_->reduce_scatter(std::move(out), in, op); });
  }
  std::unique_ptr<BackendWork> all_to_all(at::Tensor out, const at::Tensor& in,
                                          const ExchangeCounts& counts) override {
    return watched("all_to_all", in,
                   [&] { return inner_->all_to_all(std::move(out), in, counts); });
  }
  std::unique_ptr<BackendWork> send(const at::Tensor& tensor, int peer, int tag) override {
    const WatchedPeer receiver{global(peer), true};
    return watched(
        cat("send to rank ", receiver.rank), tensor,
        [&] { return inner_->send(tensor, peer, tag); }, receiver);
  }
  std::unique_ptr<BackendWork> recv(at::Tensor tensor, int peer, int tag) override {
    const WatchedPeer sender{global(peer), false};
    return watched(
        cat("recv from rank ", sender.rank), tensor,
        [&] { return inner_->recv(std::move(tensor), peer, tag); }, sender);
  }
  std::unique_ptr<BackendWork> barrier() override {
    return watched("barrier", {}, [&] { return inner_->barrier(); });
  }

 private:
  int global(int rank) const { return group_.ranks[static_cast<size_t>(rank)]; }

  template <typename Start>
  std::unique_ptr<BackendWork> watched(const std::string& operation, const at::Tensor& tensor,
                                       Start start,
                                       const std::optional<WatchedPeer>& peer = std::nullopt) {
    if (device_watch_ != nullptr) {
      if (const auto failure = watch_->failure()) throw PeerFailure(*failure);
    }
    const at::Device device = tensor.defined() ? tensor.device() : at::Device(at::kCPU);
    WatchedCall call = watch_->enter(group_, operation, peer);
    std::unique_ptr<BackendWork> work;
    std::shared_ptr<DeviceWatch::Followed> followed;
    try {
      if (device_watch_ != nullptr && !device.is_cpu()) {
        followed = device_watch_->enter(call, [&] { return inner_->mark(device); });
      }
      work = start();
    } catch (const std::exception& error) {
      if (device_failure(error)) throw;
      throw watch_->explain(call, reason_of(error.what()));
    }
    if (work == nullptr) {
      watch_->leave(call);
      return nullptr;
    }
    return std::make_unique<WatchedWork>(std::move(work), watch_, std::move(call), device_watch_,
                                         std::move(followed));
  }

  std::shared_ptr<GroupBackend> inner_;
  std::shared_ptr<FailureWatch> watch_;
  WatchedGroup group_;
  std::shared_ptr<DeviceWatch> device_watch_;
};

}  // namespace

std::shared_ptr<GroupBackend> watch_backend(std::shared_ptr<GroupBackend> backend,
                                            std::shared_ptr<FailureWatch> watch, WatchedGroup group,
                                            std::shared_ptr<DeviceWatch> device_watch) {
  return std::make_shared<WatchedBackend>(std::move(backend), std::move(watch), std::move(group),
                                          std::move(device_watch));
}

}  // namespace automodel::comm
