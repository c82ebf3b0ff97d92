// Failures while the device works and the host waits for it, with a device that is made up
// (stuck_device.h): its tensors are those without memory.
#include "comm/watch/device_watch.h"

#include <gmock/gmock.h>

#include "comm/patience.h"
#include "comm/stuck_device.h"

/// Stands where libautomodel_cuda.so's would be.
extern "C" __attribute__((visibility("default"))) automodel::comm::GroupBackend*
automodel_connect_nccl(c10d::Store*, const automodel::comm::DevicePlace* place) {
  return new automodel::comm::StuckBackend(*place);
}

namespace automodel::comm {
namespace {

using Texts = std::vector<std::string>;

void gather_on_device(const ProcessGroup& group) {
  const auto on_device = at::TensorOptions().device(at::kMeta);
  group.all_gather(at::empty({2 * group.size()}, on_device), at::empty({2}, on_device));
}

/// Gathers on the device over everybody and over pairs, waits for them as streams do, and reads.
void step_on_device(World& world) {
  const ProcessGroup pairs = world.split("pairs", {{0, 1}, {2}});
  for (const ProcessGroup& group : {world.group(), pairs}) {
    if (group.size() == 1) continue;
    gather_on_device(group);
  }
  device_of_process().synchronize();
}

RanksResult run_on_device(const std::function<void(World&)>& body,
                          double timeout_seconds = patient().timeout_seconds) {
  RanksOptions options = patient();
  options.timeout_seconds = timeout_seconds;
  options.adjust = [](int, WorldOptions& world) {
    world.lost_seconds = 1;
    world.abort_seconds = 1;
  };
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
    const double deadline = monotonic_seconds() + kHangSeconds;
    while (device_of_process().num_aborts() < 2 && monotonic_seconds() < deadline) ::usleep(1000);
    expect(device_of_process().num_aborts() == device_of_process().num_groups(), "aborts");
    expect(device_of_process().num_groups() == 2, "groups");
  });
  const std::string text = "rank 2 failed: the disk is full";
  EXPECT_EQ(result.errors, (Texts{text, text, "the disk is full"}));
  EXPECT_EQ(result.kinds, (Texts{"PeerFailure", "PeerFailure", "other"}));
  EXPECT_LT(monotonic_seconds() - begin, kHangSeconds);
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
  EXPECT_LT(monotonic_seconds() - begin, kHangSeconds);
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
  EXPECT_LT(monotonic_seconds() - begin, kHangSeconds);
}

TEST(DeviceWatchTest, AStoppedRankIsMissedByTheOneBeforeIt) {
  const RanksResult result = run_on_device([](World& world) {
    const Texts pids = world.group().all_gather_text(cat(static_cast<int64_t>(::getpid())));
    if (world.group().rank() == 2) end_after_peers();
    world.group().barrier();
    if (world.group().rank() == 0) ::kill(static_cast<pid_t>(parse_int(pids[2]).value()), SIGSTOP);
    step_on_device(world);
  });
  for (const size_t rank : {0U, 1U}) {
    EXPECT_THAT(result.errors[rank],
                testing::MatchesRegex("rank 2 vanished during all_gather of group (world|pairs) "
                                      ".no sign of life for 2.0 s."));
  }
}

TEST(DeviceWatchTest, ADeviceThatFailsIsItsRanksOwnFailure) {
  const RanksResult result = run_on_device([](World& world) {
    if (world.group().rank() == 1) {
      gather_on_device(world.group());
      device_of_process().fail("CUDA error: an illegal memory access was encountered");
      world.group().barrier();  // the host asks its device for nothing
    }
    gather_on_device(world.group());
    device_of_process().synchronize();
  });
  EXPECT_EQ(result.errors, Texts(3,
                                 "rank 1 failed: the device failed: CUDA error: an illegal "
                                 "memory access was encountered"));
  EXPECT_EQ(result.kinds, Texts(3, "PeerFailure"));
}

TEST(DeviceWatchTest, ADeviceThatIsAskedKeepsNobodyFromStartingOperations) {
  expect_ranks(2, [](World& world) {
    StuckDevice& device = device_of_process();
    device.hold_answers();
    world.use_cuda_device(0);
    gather_on_device(world.group());
    device.await_held_question();
    gather_on_device(world.group());  // while the watch's thread waits for the device's answer
    device.release_answers();
    device.finish_everything();
  });
}

TEST(DeviceWatchTest, AnOperationsAgeCountsFromWhenTheDeviceHasComeToIt) {
  expect_ranks(2, [](World& world) {
    StuckDevice& device = device_of_process();
    device.come_to(0);  // computes, and comes to nothing that it has been asked for
    world.use_cuda_device(0);
    gather_on_device(world.split("hasty", {{0, 1}}, 3.0));
    device.await_questions(20);  // four a second: longer than the timeout
    device.finish_everything();
    device.synchronize();
    world.group().barrier();
  });
}

TEST(DeviceWatchTest, GroupsThatCannotBeGivenUpEndTheProcess) {
  const double begin = monotonic_seconds();
  const RanksResult result = run_on_device([](World& world) {
    if (world.group().rank() == 2) throw std::runtime_error("the disk is full");
    if (world.group().rank() == 1) device_of_process().never_give_up();
    gather_on_device(world.group());
    device_of_process().synchronize();
  });
  EXPECT_EQ(result.errors, (Texts{"rank 2 failed: the disk is full", "", "the disk is full"}));
  // Before the launcher would kill it.
  EXPECT_LT(monotonic_seconds() - begin, kHangSeconds);
}

TEST(DeviceWatchTest, TheBackendsOwnTimeoutComesLongAfterOurs) {
  expect_ranks(2, [](World& world) {
    world.use_cuda_device(0);
    world.split("slow", {{0, 1}}, 7200.0);
    const std::vector<double> found = device_of_process().timeouts();
    expect(found.size() == 2, "groups");
    expect(found[0] >= 20 + 3600 && found[1] >= 7200 + 3600, cat(found[0], " ", found[1]));
  });
}

TEST(DeviceWatchTest, NothingIsAbortedInAGoodRun) {
  expect_ranks(3, [](World& world) {
    world.use_cuda_device(0);
    world.group().barrier();
    world.close();
    expect(device_of_process().num_groups() == 1, "groups");
    expect(device_of_process().num_aborts() == 0, "aborted");
  });
}

}  // namespace
}  // namespace automodel::comm
