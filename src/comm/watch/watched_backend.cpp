#include "comm/watch/watched_backend.h"

#include <utility>

#include "comm/groups/group_backend.h"
#include "comm/store/tcp_store.h"
#include "comm/watch/device_errors.h"
#include "core/text.h"

namespace automodel::comm {

namespace {

PeerFailure explain(FailureWatch& watch, const WatchedCall& call, const std::exception& error) {
  const bool is_cause = dynamic_cast<const RanksDisagree*>(&error) != nullptr;
  return watch.explain(call, reason_of(error.what()), is_cause);
}

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
      throw explain(*watch_, call_, error);
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
                 WatchedGroup group, std::shared_ptr<TrafficMeter> traffic,
                 std::shared_ptr<DeviceWatch> device_watch)
      : inner_(std::move(inner)),
        watch_(std::move(watch)),
        group_(std::move(group)),
        traffic_(std::move(traffic)),
        device_watch_(std::move(device_watch)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void abort() override { inner_->abort(); }
  std::unique_ptr<StreamMark> mark(at::Device device) override { return inner_->mark(device); }

  std::unique_ptr<BackendWork> start(const Collective& collective) override {
    if (device_watch_ != nullptr) {
      if (const auto failure = watch_->failure()) throw PeerFailure(*failure);
    }
    traffic_->add(collective);
    WatchedCall call = enter(collective);
    std::unique_ptr<BackendWork> work;
    std::shared_ptr<DeviceWatch::Followed> followed;
    try {
      const at::Device device = collective.device();
      if (device_watch_ != nullptr && !device.is_cpu()) {
        followed = device_watch_->enter(call, [&] { return inner_->mark(device); });
      }
      work = inner_->start(collective);
    } catch (const std::exception& error) {
      if (device_failure(error)) throw;
      throw explain(*watch_, call, error);
    }
    if (work == nullptr) {
      watch_->leave(call);
      return nullptr;
    }
    return std::make_unique<WatchedWork>(std::move(work), watch_, std::move(call), device_watch_,
                                         std::move(followed));
  }

 private:
  WatchedCall enter(const Collective& collective) {
    const std::string name(collective_name(collective.kind));
    if (!collective.is_message()) return watch_->enter(group_, name, std::nullopt);
    const bool is_sent = collective.kind == CollectiveKind::kSend;
    const int peer = group_.ranks[static_cast<size_t>(collective.peer)];
    return watch_->enter(group_,
                         cat(name, is_sent ? " to rank " : " from rank ", watch_->number_of(peer)),
                         WatchedPeer{peer, is_sent});
  }

  std::shared_ptr<GroupBackend> inner_;
  std::shared_ptr<FailureWatch> watch_;
  WatchedGroup group_;
  std::shared_ptr<TrafficMeter> traffic_;
  std::shared_ptr<DeviceWatch> device_watch_;
};

}  // namespace

std::shared_ptr<GroupBackend> watch_backend(std::shared_ptr<GroupBackend> backend,
                                            std::shared_ptr<FailureWatch> watch, WatchedGroup group,
                                            std::shared_ptr<TrafficMeter> traffic,
                                            std::shared_ptr<DeviceWatch> device_watch) {
  return std::make_shared<WatchedBackend>(std::move(backend), std::move(watch), std::move(group),
                                          std::move(traffic), std::move(device_watch));
}

}  // namespace automodel::comm
