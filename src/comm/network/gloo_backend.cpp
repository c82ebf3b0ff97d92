#include "comm/network/gloo_backend.h"

#include <ATen/ATen.h>

#include <chrono>
#include <future>
#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "comm/groups/group_backend.h"
#include "comm/network/c10d_collective.h"
#include "comm/network/waiting_threads.h"

namespace automodel::comm {

namespace {

constexpr int kNumThreads = 2;
constexpr std::chrono::milliseconds kPeriod(500);  // of looking after the peers

/// What a group's works share with it.
struct GlooState {
  GlooState(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, std::function<bool()> ask)
      : gloo(std::move(group)), has_lost_peer(std::move(ask)) {}
  ~GlooState() {
    // Its destructor would wait for the collective that was given up; the process is about to end.
    if (is_given_up) gloo.release();
  }
  GlooState(const GlooState&) = delete;
  GlooState& operator=(const GlooState&) = delete;

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::function<bool()> has_lost_peer;
  WaitingThreads threads;  // for messages
  bool is_given_up = false;
};

/// Calls `is_over` with a period until it holds; throws when a peer is gone.
void look_after_peers(GlooState& state, const std::function<bool()>& is_over) {
  bool has_lost_peer = false;
  while (!is_over()) {
    // A peer that ends well may do so a moment before we notice what it sent: ask twice.
    if (state.has_lost_peer() && std::exchange(has_lost_peer, true)) {
      state.is_given_up = true;
      throw std::runtime_error("a peer is gone");
    }
  }
}

/// A collective: c10d's threads run it.
class GlooCollective final : public BackendWork {
 public:
  GlooCollective(std::shared_ptr<GlooState> state, c10::intrusive_ptr<c10d::Work> work)
      : state_(std::move(state)), work_(std::move(work)) {}

  bool is_done() override { return work_->isCompleted(); }

  void wait() override {
    look_after_peers(*state_, [this] {
      try {
        return work_->isCompleted() || work_->wait(kPeriod);
      } catch (const std::exception&) {
        return work_->isCompleted();  // it failed, which the last wait tells
      }
    });
    work_->wait();
  }

 private:
  std::shared_ptr<GlooState> state_;
  c10::intrusive_ptr<c10d::Work> work_;
};

/// A message. Gloo has no wait with a period for it (one that ends without it breaks the group), so
/// a thread waits.
class GlooMessage final : public BackendWork {
 public:
  GlooMessage(std::shared_ptr<GlooState> state, c10::intrusive_ptr<c10d::Work> work)
      : state_(std::move(state)) {
    auto task =
        std::make_shared<std::packaged_task<void()>>([work = std::move(work)] { work->wait(); });
    over_ = task->get_future().share();
    state_->threads.run([task] { (*task)(); });
  }

  bool is_done() override { return has_ended_within(std::chrono::milliseconds(0)); }

  void wait() override {
    look_after_peers(*state_, [this] { return has_ended_within(kPeriod); });
    over_.get();
  }

 private:
  bool has_ended_within(std::chrono::milliseconds duration) const {
    return over_.wait_for(duration) == std::future_status::ready;
  }

  std::shared_ptr<GlooState> state_;
  std::shared_future<void> over_;
};

class GlooBackend final : public GroupBackend {
 public:
  explicit GlooBackend(std::shared_ptr<GlooState> state) : state_(std::move(state)) {}

  int rank() const override { return state_->gloo->getRank(); }
  int size() const override { return state_->gloo->getSize(); }

  std::unique_ptr<BackendWork> start(const Collective& collective) override {
    c10::intrusive_ptr<c10d::Work> work = start_c10d(*state_->gloo, collective, {});
    if (collective.is_message()) return std::make_unique<GlooMessage>(state_, std::move(work));
    return std::make_unique<GlooCollective>(state_, std::move(work));
  }

 private:
  std::shared_ptr<GlooState> state_;
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
  return std::make_shared<GlooBackend>(std::make_shared<GlooState>(
      c10::make_intrusive<c10d::ProcessGroupGloo>(store, place.rank, place.size, options),
      place.has_lost_peer));
}

}  // namespace automodel::comm
