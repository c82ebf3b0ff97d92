// Failures while the device works and the host waits for it, with a device that this file makes up:
// its tensors are those without memory, its operations are never done until they are aborted.
#include "comm/device_watch.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>

#include "comm/device_groups.h"
#include "comm/ranks.h"

namespace automodel::comm {
namespace {

/// The device of a process.
class StuckDevice final {
 public:
  /// What a host does that reads a number of the device.
  void synchronize() {
    std::unique_lock lock(mutex_);
    aborted_.wait(lock, [this] { return num_aborts_ > 0; });
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    num_aborts_ += 1;
    aborted_.notify_all();
  }
  int num_aborts() {
    const std::lock_guard lock(mutex_);
    return num_aborts_;
  }
  int num_groups = 0;

 private:
  std::mutex mutex_;
  std::condition_variable aborted_;
  int num_aborts_ = 0;
};

/// A rank is a process of its own.
StuckDevice& device_of_process() {
  static StuckDevice device;
  return device;
}

class NeverReached final : public StreamMark {
 public:
  void set() override {}
  bool is_reached() override { return false; }
};

class StuckWork final : public BackendWork {
 public:
  void wait() override {}  // the host goes on
  bool is_done() override { return false; }
};

class StuckBackend final : public GroupBackend {
 public:
  using Started = std::unique_ptr<BackendWork>;
  explicit StuckBackend(const DevicePlace& place) : place_(place) {
    device_of_process().num_groups += 1;
  }
  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  Started all_reduce(at::Tensor, ReduceOp) override { return started(); }
  Started broadcast(at::Tensor, int) override { return started(); }
  Started all_gather(at::Tensor, const at::Tensor&) override { return started(); }
  Started reduce_scatter(at::Tensor, const at::Tensor&, ReduceOp) override { return started(); }
  Started all_to_all(at::Tensor, const at::Tensor&, const ExchangeCounts&) override {
    return started();
  }
  Started send(const at::Tensor&, int, int) override { return started(); }
  Started recv(at::Tensor, int, int) override { return started(); }
  Started barrier() override { return started(); }
  void abort() override { device_of_process().abort(); }
  std::unique_ptr<StreamMark> mark(at::Device) override { return std::make_unique<NeverReached>(); }

 private:
  static Started started() { return std::make_unique<StuckWork>(); }

  DevicePlace place_;
};

}  // namespace
}  // namespace automodel::comm

/// Stands where libautomodel_cuda.so's would be.
extern "C" __attribute__((visibility("default"))) automodel::comm::GroupBackend*
automodel_connect_nccl(c10d::Store*, const automodel::comm::DevicePlace* place) {
  return new automodel::comm::StuckBackend(*place);
}

namespace automodel::comm {
namespace {

using Texts = std::vector<std::string>;

/// Gathers on the device over everybody and over pairs, waits for them as streams do, and reads.
void step_on_device(World& world) {
  const ProcessGroup pairs = world.split("pairs", {{0, 1}, {2}});
  for (const ProcessGroup& group : {world.group(), pairs}) {
    if (group.size() == 1) continue;
    const auto on_device = at::TensorOptions().device(at::kMeta);
    group.all_gather(at::empty({2 * group.size()}, on_device), at::empty({2}, on_device));
  }
  device_of_process().synchronize();
}

RanksResult run_on_device(const std::function<void(World&)>& body, double timeout_seconds = 20) {
  RanksOptions options;
  options.timeout_seconds = timeout_seconds;
  options.grace_seconds = 1;
  options.adjust = [](int, WorldOptions& world) { world.lost_seconds = 1; };
  return run_ranks(
      3,
      [&](World& world) {
        world.use_cuda_device(0);
        body(world);
        world.group().barrier();  // the host's next operation
      },
      options);
}

TEST(DeviceWatchTest, ARankThatFailsEndsTheWaitsOfTheOthersWithItsText) {
  const double begin = monotonic_seconds();
  const RanksResult result = run_on_device([](World& world) {
    if (world.group().rank() == 2) {
      world.split("pairs", {{0, 1}, {2}});
      throw std::runtime_error("the disk is full");
    }
    step_on_device(world);
    // A group of pairs and that of everybody, each once.
    for (int i = 0; i < 200 && device_of_process().num_aborts() < 2; ++i) ::usleep(1000);
    expect(device_of_process().num_aborts() == device_of_process().num_groups, "aborts");
    expect(device_of_process().num_groups == 2, "groups");
  });
  const std::string text = "rank 2 failed: the disk is full";
  EXPECT_EQ(result.errors, (Texts{text, text, "the disk is full"}));
  EXPECT_EQ(result.kinds, (Texts{"PeerFailure", "PeerFailure", "other"}));
  EXPECT_LT(monotonic_seconds() - begin, 5.0);
}

TEST(DeviceWatchTest, AProcessThatEndsEndsTheWaitsOfTheOthers) {
  const double begin = monotonic_seconds();
  const RanksResult result = run_on_device([](World& world) {
    if (world.group().rank() == 2) {
      world.split("pairs", {{0, 1}, {2}});
      ::raise(SIGKILL);
    }
    step_on_device(world);
  });
  for (const size_t rank : {0U, 1U}) {
    EXPECT_THAT(result.errors[rank],
                testing::MatchesRegex("rank 2 vanished during (start|all_gather) of group "
                                      "(world|pairs) .its process has ended."));
  }
  EXPECT_LT(monotonic_seconds() - begin, 5.0);
}

TEST(DeviceWatchTest, ARankThatDoesNotComeIsNamedAfterTheGroupsTimeout) {
  const double begin = monotonic_seconds();
  const RanksResult result = run_on_device(
      [](World& world) {
        if (world.group().rank() == 2) {
          world.split("pairs", {{0, 1}, {2}});
          device_of_process().synchronize();  // busy with something else
        } else {
          step_on_device(world);
        }
      },
      1.0);
  for (const size_t rank : {0U, 1U, 2U}) {
    EXPECT_THAT(result.errors[rank],
                testing::MatchesRegex("rank 2 did not come to all_gather of group world within "
                                      "1.0 s .it has been computing for .*"));
  }
  EXPECT_LT(monotonic_seconds() - begin, 8.0);
}

TEST(DeviceWatchTest, AStoppedRankIsMissedByTheOneBeforeIt) {
  const RanksResult result = run_on_device([](World& world) {
    const Texts pids = world.group().all_gather_text(cat(static_cast<int64_t>(::getpid())));
    if (world.group().rank() == 0) ::kill(static_cast<pid_t>(parse_int(pids[2]).value()), SIGSTOP);
    step_on_device(world);
  });
  for (const size_t rank : {0U, 1U}) {
    EXPECT_THAT(result.errors[rank],
                testing::MatchesRegex("rank 2 vanished during all_gather of group (world|pairs) "
                                      ".no sign of life for 2.0 s."));
  }
}

TEST(DeviceWatchTest, NothingIsAbortedInAGoodRun) {
  expect_ranks(3, [](World& world) {
    world.use_cuda_device(0);
    world.group().barrier();
    world.close();
    expect(device_of_process().num_groups == 1, "groups");
    expect(device_of_process().num_aborts() == 0, "aborted");
  });
}

}  // namespace
}  // namespace automodel::comm
