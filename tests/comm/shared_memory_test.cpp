#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>

#include "comm/patience.h"

namespace automodel::comm {
namespace {

using Groups = std::vector<std::vector<int>>;

/// More than all slots of a ring hold, and no multiple of anything.
constexpr int64_t kManySlots = 1'300'003;

at::Tensor random_values(int64_t size, int seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return at::randn({size});
}

TEST(SharedMemoryTest, SumsInTheOrderOfTheRanks) {
  expect_ranks(4, [](World& world) {
    const ProcessGroup group = world.group();
    at::Tensor sum = random_values(kManySlots, 0);
    for (int rank = 1; rank < 4; ++rank) sum += random_values(kManySlots, rank);
    at::Tensor x = random_values(kManySlots, group.rank());
    group.all_reduce(x, ReduceOp::kSum);
    expect(at::equal(x, sum), "all_reduce");
    const at::Tensor whole = random_values(4 * 200'001, group.rank());
    at::Tensor wanted = at::zeros({200'001});
    for (int rank = 0; rank < 4; ++rank) {
      const at::Tensor part =
          random_values(4 * 200'001, rank).narrow(0, group.rank() * 200'001, 200'001);
      wanted = rank == 0 ? part : wanted + part;
    }
    at::Tensor part = at::zeros({200'001});
    group.reduce_scatter(part, whole, ReduceOp::kSum);
    expect(at::equal(part, wanted), "reduce_scatter");
  });
}

TEST(SharedMemoryTest, SizesAroundSlotsAndRanks) {
  expect_ranks(3, [](World& world) {
    const ProcessGroup group = world.group();
    for (const int64_t size : {1, 2, 3, 4, 16384, 32768, 65536, 65537, 131072, 196609, 1000001}) {
      at::Tensor x = at::full({size}, group.rank() + 1, at::kInt);
      group.all_reduce(x, ReduceOp::kSum);
      expect(at::equal(x, at::full({size}, 6, at::kInt)), cat("all_reduce of ", size));
      at::Tensor all = at::zeros({3, size}, at::kInt);
      group.all_gather(all, x + group.rank());
      at::Tensor part = at::zeros({size}, at::kInt);
      group.reduce_scatter(part, all, ReduceOp::kMax);
      expect(at::equal(part, at::full({size}, 6 + group.rank(), at::kInt)),
             cat("reduce_scatter of ", size));
      at::Tensor root = at::full({size}, group.rank(), at::kByte);
      group.broadcast(root, 2);
      expect(at::equal(root, at::full({size}, 2, at::kByte)), cat("broadcast of ", size));
    }
  });
}

TEST(SharedMemoryTest, NothingBehindAnOutputIsTouched) {
  expect_ranks(2, [](World& world) {
    const ProcessGroup group = world.group();
    const at::Tensor memory = at::full({70'000 * 2 + 2}, -1.0F);
    const at::Tensor out = memory.narrow(0, 1, 70'000 * 2);
    group.all_gather(out, filled(70'000, 1));
    group.reduce_scatter(out.narrow(0, 0, 70'000), filled(140'000, 2), ReduceOp::kSum);
    group.all_reduce(out, ReduceOp::kMax);
    expect(memory[0].item<float>() == -1 && memory[140'001].item<float>() == -1, "borders");
    expect(out[0].item<float>() == 4 && out[139'999].item<float>() == 1, "values");
  });
}

TEST(SharedMemoryTest, StartedOperationsEndWhileNobodyWaits) {
  expect_ranks(2, [](World& world) {
    const ProcessGroup group = world.group();
    const at::Tensor all = at::zeros({2 * kManySlots});
    Work gathers = group.start_all_gather(all, filled(kManySlots, group.rank()));
    const at::Tensor part = at::zeros({kManySlots});
    Work reduces = group.start_reduce_scatter(part, at::ones({2 * kManySlots}), ReduceOp::kSum);
    const double deadline = monotonic_seconds() + kHangSeconds;
    while (!(gathers.is_done() && reduces.is_done()) && monotonic_seconds() < deadline) {
      ::usleep(100);
    }
    expect(gathers.is_done() && reduces.is_done(), "done without a wait");
    gathers.wait();
    reduces.wait();
    expect(all[2 * kManySlots - 1].item<float>() == 1 && part[0].item<float>() == 2, "values");
  });
}

TEST(SharedMemoryTest, GroupsMayBeWaitedForInAnyOrder) {
  expect_ranks(4, [](World& world) {
    const ProcessGroup rows = world.split("rows", Groups{{0, 1}, {2, 3}});
    const ProcessGroup columns = world.split("columns", Groups{{0, 2}, {1, 3}});
    at::Tensor x = filled(kManySlots, 1), y = filled(kManySlots, 1);
    Work in_row = rows.start_all_reduce(x, ReduceOp::kSum);
    Work in_column = columns.start_all_reduce(y, ReduceOp::kSum);
    const bool is_odd = world.group().rank() % 2 == 1;
    (is_odd ? in_row : in_column).wait();
    (is_odd ? in_column : in_row).wait();
    expect(x[kManySlots - 1].item<float>() == 2 && y[0].item<float>() == 2, "sums");
  });
}

/// Hears what a world says.
class Listener final : public Reporter {
 public:
  void info(std::string_view text) override { texts.emplace_back(text); }
  void warning(std::string_view) override {}
  void error(std::string_view) override {}

  std::vector<std::string> texts;
};

/// What the first rank says where the two ranks of a group do different things.
std::string disagreement(const std::function<void(const ProcessGroup&)>& first,
                         const std::function<void(const ProcessGroup&)>& second) {
  const RanksResult result = run_ranks(
      2,
      [&](World& world) {
        const ProcessGroup group = world.group();
        group.barrier();
        (group.rank() == 0 ? first : second)(group);
        group.barrier();
      },
      over(Transport::kMemory));
  EXPECT_EQ(result.errors[0], result.errors[1]);
  EXPECT_EQ(result.kinds[0], "PeerFailure");
  return result.errors[0];
}

TEST(SharedMemoryTest, RanksThatDoDifferentThingsAreToldOf) {
  const auto reduce = [](int64_t size, at::ScalarType dtype, ReduceOp op) {
    return [=](const ProcessGroup& group) { group.all_reduce(at::ones({size}, dtype), op); };
  };
  const auto of_eight = reduce(8, at::kFloat, ReduceOp::kSum);
  EXPECT_THAT(disagreement(of_eight, reduce(16, at::kFloat, ReduceOp::kSum)),
              testing::AllOf(testing::HasSubstr("all_reduce (sum) of 8 Float elements"),
                             testing::HasSubstr("all_reduce (sum) of 16 Float elements")));
  EXPECT_THAT(disagreement(of_eight, reduce(8, at::kInt, ReduceOp::kSum)),
              testing::HasSubstr("of 8 Int elements"));
  EXPECT_THAT(disagreement(of_eight, reduce(8, at::kFloat, ReduceOp::kMax)),
              testing::HasSubstr("all_reduce (maximum)"));
  EXPECT_THAT(disagreement(of_eight, [](const ProcessGroup& group) { group.barrier(); }),
              testing::HasSubstr("with barrier"));
  EXPECT_THAT(disagreement([](const ProcessGroup& group) { group.broadcast(at::ones({4}), 0); },
                           [](const ProcessGroup& group) { group.broadcast(at::ones({4}), 1); }),
              testing::HasSubstr("broadcast from rank"));
}

TEST(SharedMemoryTest, ADisagreementThatNobodyWaitsForIsSeen) {
  const std::string text = disagreement(
      [](const ProcessGroup& group) {
        Work work = group.start_all_reduce(at::ones({8}), ReduceOp::kSum);
        while (!work.is_done()) ::usleep(1000);
        work.wait();
      },
      [](const ProcessGroup& group) { group.all_reduce(at::ones({16}), ReduceOp::kSum); });
  EXPECT_THAT(text, testing::HasSubstr("of 16 Float elements"));
}

TEST(SharedMemoryTest, RanksThatCannotShareTalkOverTheNetworkAndSaySo) {
  RanksOptions options;
  Listener listener;  // every rank has a copy
  options.adjust = [&](int process, WorldOptions& world) {
    world.reporter = &listener;
    if (process != 0) return;
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  };
  expect_ranks(
      2,
      [&](World& world) {
        at::Tensor x = filled(10, 1);
        world.group().all_reduce(x, ReduceOp::kSum);
        expect(x[9].item<float>() == 2, "sum");
        const std::vector<std::string> wanted = {
            "the ranks of group world talk over the network, as they cannot share memory "
            "(posix_fallocate: File too large)"};
        expect(listener.texts == wanted, listener.texts.empty() ? "silent" : listener.texts[0]);
      },
      options);
}

/// Resident bytes of shared memory of a process.
int64_t num_shared_bytes(pid_t pid) {
  for (const std::string& line : split(read_file(cat("/proc/", pid, "/status")), '\n')) {
    if (line.starts_with("RssShmem:")) {
      return parse_int(trim(line.substr(9, line.find("kB") - 9))).value_or(-1) << 10;
    }
  }
  return -1;
}

TEST(SharedMemoryTest, TakesTheMemoryOfItsRingsOnly) {
  expect_ranks(2, [](World& world) {
    at::Tensor x = at::ones({16 << 20});
    world.group().all_reduce(x, ReduceOp::kSum);
    const int64_t num_bytes = num_shared_bytes(::getpid());
    expect(num_bytes > 0 && num_bytes < (5 << 20), cat("shared bytes: ", num_bytes));
  });
}

TEST(SharedMemoryFailureTest, AKilledPeerIsNamedOverTheLoopbackToo) {
  const double begin = monotonic_seconds();
  const RanksResult result = run_ranks(
      3,
      [](World& world) {
        at::Tensor x = filled(4, 1);
        world.group().all_reduce(x, ReduceOp::kSum);
        if (world.group().rank() == 2) ::raise(SIGKILL);
        world.group().all_reduce(x, ReduceOp::kSum);
      },
      patient(over(Transport::kLoopback)));
  const std::string text =
      "rank 2 vanished during all_reduce of group world (its process has ended)";
  EXPECT_EQ(result.errors, (std::vector<std::string>{text, text, ""}));
  EXPECT_LT(monotonic_seconds() - begin, kHangSeconds);
}

TEST(SharedMemoryFailureTest, APeerKilledInTheMiddleOfMovingIsNamed) {
  const RanksResult result = run_ranks(2, [](World& world) {
    const ProcessGroup group = world.group();
    at::Tensor x = at::ones({64 << 20}, at::kByte);
    std::vector<Work> works;
    for (int i = 0; i < 50; ++i) works.push_back(group.start_all_reduce(x, ReduceOp::kMax));
    for (size_t i = 0; i < works.size(); ++i) {
      works[i].wait();
      if (i == 2 && group.rank() == 1) ::raise(SIGKILL);
    }
  });
  EXPECT_EQ(result.status, 128 + SIGKILL);
  EXPECT_EQ(result.errors[0],
            "rank 1 vanished during all_reduce of group world (its process has ended)");
}

}  // namespace
}  // namespace automodel::comm
