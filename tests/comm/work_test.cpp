#include "comm/groups/process_group.h"

#include <gmock/gmock.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "comm/patience.h"

namespace automodel::comm {
namespace {

/// 1000 r + i at element i.
at::Tensor numbered(int64_t size, int rank) {
  return at::arange(size, at::kDouble) + 1000.0 * rank;
}

class WorkTest : public testing::TestWithParam<RanksParam> {
 protected:
  int num_ranks() const { return std::get<0>(GetParam()); }
  void expect_all(const std::function<void(World&)>& body) const {
    expect_ranks(num_ranks(), body, over(std::get<1>(GetParam())));
  }
};

TEST_P(WorkTest, SeveralCollectivesAreUnderWayAtOnce) {
  const int n = num_ranks();
  expect_all([n](World& world) {
    const ProcessGroup group = world.group();
    std::vector<at::Tensor> outs;
    std::vector<Work> works;
    for (int i = 0; i < 4; ++i) {
      outs.push_back(at::zeros({n * 70000}, at::kDouble));
      // The operation keeps its input alive.
      works.push_back(group.start_all_gather(outs.back(), numbered(70000, group.rank()) + i));
      outs.push_back(at::full({1000}, group.rank() + i, at::kDouble));
      works.push_back(group.start_all_reduce(outs.back(), ReduceOp::kSum));
      outs.push_back(at::zeros({5}, at::kDouble));
      works.push_back(group.start_reduce_scatter(
          outs.back(), at::full({5 * n}, 1.0 + i, at::kDouble), ReduceOp::kSum));
    }
    for (Work& work : works) {
      work.wait();
      expect(work.is_done(), "done after its wait");
      work.wait();
    }
    for (size_t i = 0; i < 4; ++i) {
      const double step = static_cast<double>(i);
      for (int rank = 0; rank < n; ++rank) {
        expect(at::equal(outs[3 * i].narrow(0, rank * 70000, 70000), numbered(70000, rank) + step),
               "all_gather");
      }
      expect(outs[3 * i + 1][999].item<double>() == n * (n - 1) / 2.0 + n * step, "all_reduce");
      expect(outs[3 * i + 2][4].item<double>() == n * (1.0 + step), "reduce_scatter");
    }
  });
}

TEST_P(WorkTest, TheTimeThatARankWaitsIsKnown) {
  const test::TemporaryDirectory folder;
  expect_all([&](World& world) {
    const ProcessGroup group = world.group();
    group.barrier();
    const bool is_late = group.rank() == 1;
    if (is_late) {
      await_file(folder.file("0"));
      // The others wait meanwhile.
      at::Tensor work = at::ones({200, 200});
      const double begin = monotonic_seconds();
      while (monotonic_seconds() - begin < 1) work = at::mm(work, work).mul_(0.005);
    } else if (group.rank() == 0) {
      folder.write("0", "");
    }
    const double waited = world.waited_seconds();
    const double begin = monotonic_seconds();
    group.all_reduce(at::ones({8}), ReduceOp::kSum);
    const double took = monotonic_seconds() - begin;
    const double waited_now = world.waited_seconds() - waited;
    expect(waited_now <= took, "waits longer than it takes");
    if (group.rank() == 0) expect(waited_now > 0.1, "waits for rank 1");
    Work under_way = group.start_all_reduce(at::ones({8}), ReduceOp::kSum);
    const double before = world.waited_seconds();
    const double work_begin = monotonic_seconds();
    std::this_thread::sleep_for(std::chrono::seconds(2));  // every rank works
    const double worked = monotonic_seconds() - work_begin;
    under_way.wait();
    expect(world.waited_seconds() - before < worked / 2, "it does not wait while it works");
  });
}

/// Of all groups together; the whole tensors count, whoever has which part.
TEST_P(WorkTest, ARankKnowsWhatItHasMoved) {
  const int n = num_ranks();
  expect_all([n](World& world) {
    const ProcessGroup group = world.group();
    std::vector<int> ranks(static_cast<size_t>(n));
    std::iota(ranks.begin(), ranks.end(), 0);
    const ProcessGroup reversed = world.split("reversed", {{ranks.rbegin(), ranks.rend()}});
    const auto moved = [&](const char* name) {
      const Traffic traffic = world.traffic();
      const auto found = traffic.find(name);
      return found == traffic.end() ? Moved() : found->second;
    };
    const Moved before = moved("all_gather");
    expect(moved("reduce_scatter").num_operations == 0, "nothing of a kind before its first");
    group.all_gather(at::zeros({n * 3}, at::kDouble), at::ones({3}, at::kDouble));
    reversed.all_gather(at::zeros({n * 2}, at::kFloat), at::ones({2}, at::kFloat));
    const Moved gathered = moved("all_gather");
    expect(gathered.num_operations - before.num_operations == 2, "two gathers");
    expect(gathered.bytes - before.bytes == n * 3 * 8 + n * 2 * 4, "of the whole results");
    group.reduce_scatter(at::zeros({5}, at::kFloat), at::ones({n * 5}, at::kFloat), ReduceOp::kSum);
    expect(moved("reduce_scatter").bytes == n * 5 * 4, "of the whole input");
  });
}

TEST_P(WorkTest, GathersFromARanksPartOfTheOutput) {
  const int n = num_ranks();
  expect_all([n](World& world) {
    const ProcessGroup group = world.group();
    at::Tensor all = at::zeros({n * 300}, at::kDouble);
    const at::Tensor own = all.narrow(0, group.rank() * 300, 300);
    own.copy_(numbered(300, group.rank()));
    group.all_gather(all, own);
    for (int rank = 0; rank < n; ++rank) {
      expect(at::equal(all.narrow(0, rank * 300, 300), numbered(300, rank)), "part");
    }
  });
}

TEST_P(WorkTest, ReducesIntoARanksPartOfTheInput) {
  const int n = num_ranks();
  expect_all([n](World& world) {
    const ProcessGroup group = world.group();
    const at::Tensor all = numbered(n * 300, group.rank());
    const at::Tensor given = all.clone();
    const at::Tensor own = all.narrow(0, group.rank() * 300, 300);
    group.reduce_scatter(own, all, ReduceOp::kSum);
    at::Tensor sum = at::zeros({300}, at::kDouble);
    for (int rank = 0; rank < n; ++rank) {
      sum += numbered(n * 300, rank).narrow(0, group.rank() * 300, 300);
    }
    expect(at::equal(own, sum), "reduced part");
    given.narrow(0, group.rank() * 300, 300).copy_(sum);
    expect(at::equal(all, given), "other parts stay");
  });
}

TEST_P(WorkTest, ExchangesRowsOfUnevenCounts) {
  const int n = num_ranks();
  expect_all([n](World& world) {
    const ProcessGroup group = world.group();
    // Rank r sends s + 2 r rows of two numbers to rank s; rank 0 sends itself nothing.
    ExchangeCounts counts;
    std::vector<at::Tensor> sent, received;
    const auto rows = [](int from, int to) {
      return at::full({to + 2 * from, 2}, 100.0 * from + to, at::kFloat);
    };
    for (int rank = 0; rank < n; ++rank) {
      sent.push_back(rows(group.rank(), rank));
      received.push_back(rows(rank, group.rank()));
      counts.in.push_back(sent.back().size(0));
      counts.out.push_back(received.back().size(0));
    }
    const at::Tensor wanted = at::cat(received);
    const at::Tensor out = at::zeros_like(wanted);
    group.all_to_all(out, at::cat(sent), counts);
    expect(at::equal(out, wanted), "rows");
  });
}

TEST_P(WorkTest, SendsAroundARing) {
  const int n = num_ranks();
  expect_all([n](World& world) {
    const ProcessGroup group = world.group();
    const int next = (group.rank() + 1) % n, last = (group.rank() + n - 1) % n;
    const at::Tensor first = at::zeros({50000}, at::kDouble), second = at::zeros({3}, at::kDouble);
    Work receives_second = group.start_recv(second, last, 1);
    Work receives_first = group.start_recv(first, last, 0);
    Work sends_first = group.start_send(numbered(50000, group.rank()), next, 0);
    Work sends_second = group.start_send(numbered(3, 10 + group.rank()), next, 1);
    for (Work* work : {&sends_first, &sends_second, &receives_first, &receives_second}) {
      work->wait();
    }
    expect(at::equal(first, numbered(50000, last)), "first message");
    expect(at::equal(second, numbered(3, 10 + last)), "second message");
  });
}

TEST_P(WorkTest, EmptyTensorsAreDoneAtOnce) {
  expect_all([](World& world) {
    const at::Tensor none = at::zeros({0});
    expect(world.group().start_all_gather(none, none).is_done(), "all_gather");
    expect(world.group().start_reduce_scatter(none, none, ReduceOp::kSum).is_done(),
           "reduce_scatter");
    expect(world.group().start_all_reduce(none, ReduceOp::kSum).is_done(), "all_reduce");
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, WorkTest, ranks_and_transports(), name_of);

TEST(WorkFailureTest, AnUnansweredReceiveNamesTheSender) {
  RanksOptions options;
  options.timeout_seconds = 1;
  const test::TemporaryDirectory folder;
  const RanksResult result = run_ranks(
      2,
      [&](World& world) {
        const ProcessGroup group = world.group();
        group.barrier();
        if (group.rank() == 1) {
          await_file(folder.file("done"));
          ::_exit(0);
        }
        at::Tensor x = filled(2, 0);
        Work work = group.start_recv(x, 1);
        try {
          work.wait();
        } catch (const PeerFailure&) {
          folder.write("done", "");
          throw;
        }
      },
      options);
  EXPECT_THAT(result.errors[0],
              testing::MatchesRegex("rank 1 did not come to recv from rank 1 of group world within "
                                    "1.0 s .it has been computing for [1-9].[0-9] s."));
}

TEST(WorkFailureTest, AKilledPeerIsNamedWithTheOldestStartedOperation) {
  const double begin = monotonic_seconds();
  const RanksResult result = run_ranks(
      2,
      [](World& world) {
        const ProcessGroup group = world.group();
        group.barrier();
        if (group.rank() == 1) ::raise(SIGKILL);
        at::Tensor x = filled(2, 0), y = filled(4, 0);
        Work reduces = group.start_all_reduce(x, ReduceOp::kSum);
        Work gathers = group.start_all_gather(y, filled(2, 0));
        reduces.wait();
        gathers.wait();
      },
      patient());
  EXPECT_EQ(result.errors[0],
            "rank 1 vanished during all_reduce of group world (its process has ended)");
  EXPECT_LT(monotonic_seconds() - begin, kHangSeconds);
}

TEST(SoloWorkTest, AGroupOfOneIsDoneAtOnce) {
  const ProcessGroup group = ProcessGroup::solo();
  const at::Tensor x = numbered(6, 1), out = at::zeros({6}, at::kDouble);
  EXPECT_TRUE(group.start_all_gather(out, x).is_done());
  EXPECT_TRUE(at::equal(out, x));
  EXPECT_TRUE(group.start_reduce_scatter(out, numbered(6, 2), ReduceOp::kAvg).is_done());
  EXPECT_TRUE(at::equal(out, numbered(6, 2)));
  EXPECT_TRUE(group.start_all_reduce(out, ReduceOp::kSum).is_done());
  group.all_to_all(out, x, {{6}, {6}});
  EXPECT_TRUE(at::equal(out, x));
  Work().wait();
}

}  // namespace
}  // namespace automodel::comm
