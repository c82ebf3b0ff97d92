#include "comm/watched_backend.h"

#include <utility>

#include "comm/tcp_store.h"
#include "core/text.h"

namespace automodel::comm {

namespace {

class WatchedWork final : public BackendWork {
 public:
  WatchedWork(std::unique_ptr<BackendWork> inner, std::shared_ptr<FailureWatch> watch,
              WatchedCall call)
      : inner_(std::move(inner)), watch_(std::move(watch)), call_(std::move(call)) {}
  ~WatchedWork() override { watch_->leave(call_); }
  WatchedWork(const WatchedWork&) = delete;
  WatchedWork& operator=(const WatchedWork&) = delete;

  bool is_done() override { return inner_->is_done(); }

  void wait() override {
    watch_->begin_wait(call_);
    try {
      inner_->wait();
    } catch (const std::exception& error) {
      throw watch_->explain(call_, reason_of(error.what()));
    }
    watch_->leave(call_);
  }

 private:
  std::unique_ptr<BackendWork> inner_;
  std::shared_ptr<FailureWatch> watch_;
  WatchedCall call_;
};

class WatchedBackend final : public GroupBackend {
 public:
  WatchedBackend(std::shared_ptr<GroupBackend> inner, std::shared_ptr<FailureWatch> watch,
                 WatchedGroup group)
      : inner_(std::move(inner)), watch_(std::move(watch)), group_(std::move(group)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  std::unique_ptr<BackendWork> all_reduce(at::Tensor tensor, ReduceOp op) override {
    return watched("all_reduce", [&] { return inner_->all_reduce(std::move(tensor), op); });
  }
  std::unique_ptr<BackendWork> broadcast(at::Tensor tensor, int root) override {
    return watched("broadcast", [&] { return inner_->broadcast(std::move(tensor), root); });
  }
  std::unique_ptr<BackendWork> all_gather(at::Tensor out, const at::Tensor& in) override {
    return watched("all_gather", [&] { return inner_->all_gather(std::move(out), in); });
  }
  std::unique_ptr<BackendWork> reduce_scatter(at::Tensor out, const at::Tensor& in,
                                              ReduceOp op) override {
    return watched("reduce_scatter",
                   [&] { return inner_->reduce_scatter(std::move(out), in, op); });
  }
  std::unique_ptr<BackendWork> all_to_all(at::Tensor out, const at::Tensor& in,
                                          const ExchangeCounts& counts) override {
    return watched("all_to_all", [&] { return inner_->all_to_all(std::move(out), in, counts); });
  }
  std::unique_ptr<BackendWork> send(const at::Tensor& tensor, int peer, int tag) override {
    const WatchedPeer receiver{global(peer), true};
    return watched(
        cat("send to rank ", receiver.rank), [&] { return inner_->send(tensor, peer, tag); },
        receiver);
  }
  std::unique_ptr<BackendWork> recv(at::Tensor tensor, int peer, int tag) override {
    const WatchedPeer sender{global(peer), false};
    return watched(
        cat("recv from rank ", sender.rank),
        [&] { return inner_->recv(std::move(tensor), peer, tag); }, sender);
  }
  std::unique_ptr<BackendWork> barrier() override {
    return watched("barrier", [&] { return inner_->barrier(); });
  }

 private:
  int global(int rank) const { return group_.ranks[static_cast<size_t>(rank)]; }

  template <typename Start>
  std::unique_ptr<BackendWork> watched(const std::string& operation, Start start,
                                       const std::optional<WatchedPeer>& peer = std::nullopt) {
    WatchedCall call = watch_->enter(group_, operation, peer);
    std::unique_ptr<BackendWork> work;
    try {
      work = start();
    } catch (const std::exception& error) {
      throw watch_->explain(call, reason_of(error.what()));
    }
    if (work == nullptr) {
      watch_->leave(call);
      return nullptr;
    }
    return std::make_unique<WatchedWork>(std::move(work), watch_, std::move(call));
  }

  std::shared_ptr<GroupBackend> inner_;
  std::shared_ptr<FailureWatch> watch_;
  WatchedGroup group_;
};

}  // namespace

std::shared_ptr<GroupBackend> watch_backend(std::shared_ptr<GroupBackend> backend,
                                            std::shared_ptr<FailureWatch> watch,
                                            WatchedGroup group) {
  return std::make_shared<WatchedBackend>(std::move(backend), std::move(watch), std::move(group));
}

}  // namespace automodel::comm
