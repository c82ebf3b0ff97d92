#include "comm/hosts/hosts_backend.h"

#include <sched.h>

#include <csignal>

#include "comm/patience.h"

namespace automodel::comm {
namespace {

/// Makes the calling process one of another host, for those who ask for its name: false where it
/// may not.
bool move_to_host(const std::string& name) {
  const int kinds = ::geteuid() == 0 ? CLONE_NEWUTS : CLONE_NEWUTS | CLONE_NEWUSER;
  return ::unshare(kinds) == 0 && ::sethostname(name.data(), name.size()) == 0;
}

/// Ranks on hosts, as many on each, one behind the other.
RanksOptions on_hosts(int num_on_host) {
  RanksOptions options;
  options.adjust = [num_on_host](int process, WorldOptions& world) {
    world.network_interface = "lo";
    if (!move_to_host(cat("host", process / num_on_host))) {
      throw std::runtime_error("this machine lets no process have a host name of its own");
    }
  };
  return options;
}

void expect_on_hosts(int num_ranks, int num_on_host, const std::function<void(World&)>& body) {
  const RanksResult result = run_ranks(num_ranks, body, on_hosts(num_on_host));
  EXPECT_EQ(result.errors, std::vector<std::string>(static_cast<size_t>(num_ranks)));
}

/// Ranks whose hosts are namespaces of one machine, each with a network interface or without.
void expect_soon_met(const std::vector<std::string>& interfaces) {
  RanksOptions options = on_hosts(1);
  options.timeout_seconds = 30;
  options.adjust = [move = options.adjust, interfaces](int process, WorldOptions& world) {
    move(process, world);
    world.network_interface = interfaces[static_cast<size_t>(process)];
  };
  const double begin = monotonic_seconds();
  const RanksResult result = run_ranks(
      2, [](World& world) { expect(world.spans_hosts(), "they are on one host"); }, options);
  EXPECT_EQ(result.errors, std::vector<std::string>(2));
  EXPECT_LT(monotonic_seconds() - begin, options.timeout_seconds / 2);
}

TEST(HostsStartTest, WaitsForNobodyWhereAnInterfaceIsNamed) {
  expect_soon_met({"lo", "lo"});
}

TEST(HostsStartTest, WaitsForNobodyWhereAnInterfaceIsNamedOnOneHostAlone) {
  expect_soon_met({"", "lo"});
}

TEST(HostsStartTest, GoesOverTheLoopbackWhereAllReachTheStoreSo) {
  expect_soon_met({"", ""});
}

at::Tensor values_of(int rank, int64_t count, at::ScalarType dtype = at::kFloat) {
  return (at::arange(count, at::kFloat) / 7 + 100 * rank).to(dtype);
}

TEST(HostsLayoutTest, IsThatOfHostsWithAsManyRanksOneBehindTheOther) {
  EXPECT_EQ(layout_of({"a", "a", "b", "b", "c", "c"}), (HostsLayout{3, 2}));
  EXPECT_EQ(layout_of({"a", "b", "c"}), (HostsLayout{3, 1}));
  EXPECT_EQ(layout_of({"a", "a"}), HostsLayout());
  EXPECT_EQ(layout_of({"a", "a", "b"}), HostsLayout());
  EXPECT_EQ(layout_of({"a", "b", "b", "a"}), HostsLayout());
  EXPECT_EQ(layout_of({"a", "b", "a", "b"}), HostsLayout());
  EXPECT_EQ(layout_of({"a", "a", "b", "b", "a", "a"}), HostsLayout());
}

class HostsTest : public testing::TestWithParam<int> {};  // ranks on a host

TEST_P(HostsTest, GathersInTheOrderOfTheRanks) {
  expect_on_hosts(4, GetParam(), [](World& world) {
    const ProcessGroup group = world.group();
    for (const int64_t count : {1, 1000, 300'001}) {
      at::Tensor all = at::zeros({4, count});
      group.all_gather(all, values_of(group.rank(), count));
      for (int rank = 0; rank < 4; ++rank) {
        expect(at::equal(all[rank], values_of(rank, count)), cat("part ", rank, " of ", count));
      }
      // In place.
      all.zero_();
      all[group.rank()].copy_(values_of(group.rank(), count));
      group.all_gather(all, all[group.rank()]);
      expect(at::equal(all[3], values_of(3, count)), cat("in place, of ", count));
    }
  });
}

TEST_P(HostsTest, ReducesEveryDtypeAndOperation) {
  expect_on_hosts(4, GetParam(), [](World& world) {
    const ProcessGroup group = world.group();
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble, at::kLong}) {
      for (const int64_t count : {3, 20'000, 70'001}) {
        const std::string what = cat(c10::toString(dtype), " of ", count);
        at::Tensor numbers = at::full({count}, 1 + group.rank(), dtype);
        group.all_reduce(numbers, ReduceOp::kSum);
        expect(at::equal(numbers, at::full({count}, 10, dtype)), cat("sum ", what));
        if (dtype != at::kLong) {
          numbers.fill_(2 + 4 * group.rank());
          group.all_reduce(numbers, ReduceOp::kAvg);
          expect(at::equal(numbers, at::full({count}, 8, dtype)), cat("average ", what));
        }
        numbers =
            at::arange(count, at::kLong).remainder(11).to(dtype) * (group.rank() == 2 ? 2 : 1);
        group.all_reduce(numbers, ReduceOp::kMax);
        expect(at::equal(numbers, at::arange(count, at::kLong).remainder(11).to(dtype) * 2),
               cat("largest ", what));
        const at::Tensor whole = at::arange(4 * count, at::kLong).remainder(50).to(dtype);
        at::Tensor part = at::zeros({count}, dtype);
        group.reduce_scatter(part, whole, ReduceOp::kSum);
        expect(at::equal(part, whole.narrow(0, group.rank() * count, count) * 4),
               cat("part of a sum ", what));
      }
    }
  });
}

/// Numbers that rounding makes differ by the order of a sum.
TEST_P(HostsTest, SumsHaveTheSameBitsOnAllRanks) {
  expect_on_hosts(4, GetParam(), [](World& world) {
    const ProcessGroup group = world.group();
    at::manual_seed(static_cast<uint64_t>(group.rank()));
    at::Tensor numbers = at::randn({100'003}) * (1 + 1000 * group.rank());
    const at::Tensor again = numbers.clone();
    group.all_reduce(numbers, ReduceOp::kSum);
    group.all_reduce(again, ReduceOp::kSum);
    expect(at::equal(numbers, again), "a second time");
    at::Tensor all = at::zeros({4, numbers.numel()});
    group.all_gather(all, numbers);
    for (int rank = 0; rank < 4; ++rank) expect(at::equal(all[rank], numbers), cat("rank ", rank));
  });
}

/// Operations that go different ways are started before others have ended, in any order of ends.
TEST_P(HostsTest, ManyOperationsAtATimeDoNotMeetEachOther) {
  expect_on_hosts(4, GetParam(), [](World& world) {
    const ProcessGroup group = world.group();
    for (int round = 0; round < 10; ++round) {
      at::Tensor all = at::zeros({4, 50'000}), part = at::zeros({50'000});
      at::Tensor small = at::full({1}, round + group.rank());
      const at::Tensor whole = at::full({200'000}, 1 + group.rank());
      Work gather = group.start_all_gather(all, at::full({50'000}, 1.0 * round + group.rank()));
      Work scatter = group.start_reduce_scatter(part, whole.to(at::kFloat), ReduceOp::kSum);
      Work reduce = group.start_all_reduce(small, ReduceOp::kSum);
      reduce.wait();
      expect(small.item<int64_t>() == 4 * round + 6, "a small sum");
      gather.wait();
      scatter.wait();
      for (int rank = 0; rank < 4; ++rank) {
        expect(all[rank].eq(round + rank).all().item<bool>(), "a gather");
      }
      expect(part.eq(10).all().item<bool>(), "a part of a sum");
    }
  });
}

/// A rank of another host ends: whoever waits says so, also those that talk to others only.
TEST_P(HostsTest, ALostRankIsNamedOnEveryHost) {
  const RanksResult result = run_ranks(
      4,
      [](World& world) {
        const ProcessGroup group = world.group();
        at::Tensor all = at::zeros({4, 100'000});
        group.all_gather(all, values_of(group.rank(), 100'000));
        if (group.rank() == 3) ::kill(::getpid(), SIGKILL);
        group.all_gather(all, values_of(group.rank(), 100'000));
      },
      on_hosts(GetParam()));
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_NE(result.errors[rank].find("rank 3 vanished during all_gather of group world"),
              std::string::npos)
        << result.errors[rank];
  }
}

INSTANTIATE_TEST_SUITE_P(OnAHost, HostsTest, testing::Values(1, 2));

}  // namespace
}  // namespace automodel::comm
