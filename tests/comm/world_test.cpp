#include "comm/world.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <functional>

#include "core/clock.h"
#include "core/file.h"
#include "launcher/local_ranks.h"
#include "support/temporary_directory.h"

namespace automodel::comm {
namespace {

/// Runs `body` as real processes of a world; 0 when every rank's body returned without a throw.
int run_ranks(int num_ranks, const std::function<void(World&)>& body) {
  launcher::LocalRun run;
  run.rank_main = [&](const launcher::LocalRank& place) {
    at::set_num_threads(1);
    WorldOptions options;
    options.rank = place.rank;
    options.size = place.num_ranks;
    options.port = place.port;
    options.timeout_seconds = 20;
    try {
      World world(options);
      body(world);
      world.close();
      return 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", place.rank, error.what());
      return 1;
    }
  };
  run.serve_store = [](int fd, int port, int ranks) -> std::shared_ptr<void> {
    return std::make_shared<StoreServer>(fd, port, ranks);
  };
  return launcher::run_local_ranks(num_ranks, run);
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

class WorldTest : public testing::TestWithParam<int> {};

TEST_P(WorldTest, ReducesGathersAndBroadcasts) {
  const int n = GetParam();
  EXPECT_EQ(
      run_ranks(n,
                [n](World& world) {
                  const ProcessGroup group = world.group();
                  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
                    at::Tensor x = at::full({5}, group.rank() + 1.0, dtype);
                    group.all_reduce(x, ReduceOp::kSum);
                    expect(x[4].item<double>() == n * (n + 1) / 2.0, "sum");
                  }
                  at::Tensor mean = at::full({3}, static_cast<double>(group.rank()));
                  group.all_reduce(mean, ReduceOp::kAvg);
                  expect(mean[0].item<double>() == (n - 1) / 2.0, "mean");
                  at::Tensor all = at::zeros({2 * n});
                  group.all_gather(all, at::full({2}, static_cast<double>(group.rank())));
                  expect(all[2 * n - 1].item<double>() == n - 1, "all_gather");
                  at::Tensor part = at::zeros({2});
                  group.reduce_scatter(part, at::ones({2 * n}), ReduceOp::kSum);
                  expect(part[0].item<double>() == n, "reduce_scatter");
                  at::Tensor root = at::full({4}, group.rank() == 1 ? 7.0 : 0.0);
                  group.broadcast(root, 1);
                  expect(root[3].item<double>() == 7.0, "broadcast");
                }),
      0);
}

TEST_P(WorldTest, ExchangesTextsAndAgreesOnNumbers) {
  const int n = GetParam();
  EXPECT_EQ(
      run_ranks(n,
                [n](World& world) {
                  const ProcessGroup group = world.group();
                  const auto texts =
                      group.all_gather_text(std::string(static_cast<size_t>(group.rank()), 'x'));
                  expect(static_cast<int>(texts.size()) == n &&
                             texts[static_cast<size_t>(n - 1)].size() == static_cast<size_t>(n - 1),
                         "texts");
                  expect(group.broadcast_text(group.rank() == 0 ? "from 0" : "no", 0) == "from 0",
                         "text");
                  expect(group.agree_max(group.rank() == 1 ? 15 : 0) == 15, "max");
                }),
      0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, WorldTest, testing::Values(2, 4));

TEST(WorldFailureTest, AFailingRanksTextReachesItsPeers) {
  const test::TemporaryDirectory folder;
  run_ranks(3, [&](World& world) {
    if (world.group().rank() == 1) {
      world.fail("the disk is full");
      ::_exit(3);
    }
    try {
      at::Tensor x = at::ones({4});
      world.group().all_reduce(x, ReduceOp::kSum);
    } catch (const PeerFailure& error) {
      write_file_atomic(folder.file(cat("rank", world.group().rank())), error.what());
      throw;
    }
  });
  EXPECT_EQ(read_file(folder.file("rank0")), "rank 1 failed: the disk is full");
  EXPECT_EQ(read_file(folder.file("rank2")), "rank 1 failed: the disk is full");
}

TEST(WorldFailureTest, AKilledRankIsNamedWithinSeconds) {
  const test::TemporaryDirectory folder;
  const double begin = monotonic_seconds();
  const int status = run_ranks(3, [&](World& world) {
    at::Tensor x = at::ones({4});
    world.group().all_reduce(x, ReduceOp::kSum);
    if (world.group().rank() == 2) ::raise(SIGKILL);
    try {
      world.group().all_reduce(x, ReduceOp::kSum);
    } catch (const PeerFailure& error) {
      write_file_atomic(folder.file(cat("rank", world.group().rank())), error.what());
      throw;
    }
  });
  EXPECT_EQ(status, 128 + SIGKILL);
  EXPECT_LT(monotonic_seconds() - begin, 8.0);
  const std::string text = read_file(folder.file("rank0"));
  EXPECT_TRUE(text.starts_with("all_reduce of 3 ranks failed; not answering: rank 2 (")) << text;
  EXPECT_EQ(text.find("/pytorch/"), std::string::npos) << text;
}

TEST(SoloWorldTest, AWorldOfOneNeedsNothing) {
  World world(WorldOptions{});
  at::Tensor x = at::ones({2});
  world.group().all_reduce(x, ReduceOp::kSum);
  EXPECT_EQ(world.group().size(), 1);
  EXPECT_EQ(world.group().all_gather_text("a"), std::vector<std::string>{"a"});
  world.close();
}

}  // namespace
}  // namespace automodel::comm
