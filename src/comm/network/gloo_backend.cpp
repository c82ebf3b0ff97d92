#include "comm/network/gloo_backend.h"

#include <ATen/ATen.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "comm/groups/group_backend.h"
#include "comm/network/c10d_collective.h"
#include "comm/network/local_address.h"
#include "comm/network/waiting_threads.h"
#include "core/error.h"
#include "core/process.h"
#include "core/text.h"

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

GlooDevices open_gloo_devices(const GlooPlaces& places) {
  if (!places.interfaces.empty()) {
    GlooDevices devices;
    for (const std::string& interface : split(places.interfaces, ',')) {
      try {
        devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(interface));
      } catch (const std::exception&) {
        const std::vector<std::string> there = interface_addresses();
        throw UserError(cat("GLOO_SOCKET_IFNAME names '", interface, "', and ", host_name(),
                            " has no such network interface with an address; it has ",
                            there.empty() ? "the loopback alone" : join(there, ", ")));
      }
    }
    return devices;
  }
  try {
    if (places.address.empty()) return {c10d::ProcessGroupGloo::createDefaultDevice()};
    return {c10d::ProcessGroupGloo::createDeviceForHostname(places.address)};
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw UserError(
        cat("cannot listen at ",
            places.address.empty() ? cat("this host's name, ", host_name()) : places.address, " (",
            text.substr(0, text.find('\n')),
            "); GLOO_SOCKET_IFNAME names the network interface that the ranks of other "
            "hosts reach"));
  }
}

/// What `make` gives, made on a thread: throws when a peer is gone before, and leaves the thread
/// behind, since the process is about to end.
static c10::intrusive_ptr<c10d::ProcessGroupGloo> made_among_the_living(
    const std::function<c10::intrusive_ptr<c10d::ProcessGroupGloo>()>& make,
    const std::function<bool()>& has_lost_peer) {
  auto task =
      std::make_shared<std::packaged_task<c10::intrusive_ptr<c10d::ProcessGroupGloo>()>>(make);
  std::future<c10::intrusive_ptr<c10d::ProcessGroupGloo>> made = task->get_future();
  std::thread thread([task] { (*task)(); });
  bool was_lost = false;
  while (made.wait_for(kPeriod) != std::future_status::ready) {
    if (has_lost_peer() && std::exchange(was_lost, true)) {
      thread.detach();
      throw std::runtime_error("a peer is gone");
    }
  }
  thread.join();
  return made.get();
}

std::shared_ptr<GroupBackend> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                           const GlooDevices& devices, const GlooPlace& place) {
  const auto timeout =
      std::chrono::milliseconds(static_cast<int64_t>(place.timeout_seconds * 1000.0));
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices = devices;
  options->threads = kNumThreads;
  const auto make = [store, options, rank = place.rank, size = place.size] {
    return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  };
  return std::make_shared<GlooBackend>(std::make_shared<GlooState>(
      made_among_the_living(make, place.has_lost_peer), place.has_lost_peer));
}

}  // namespace automodel::comm
