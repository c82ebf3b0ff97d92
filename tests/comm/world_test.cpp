#include "comm/world/world.h"

#include <gmock/gmock.h>

#include "comm/ranks.h"

namespace automodel::comm {
namespace {

class WorldTest : public testing::TestWithParam<RanksParam> {
 protected:
  int num_ranks() const { return std::get<0>(GetParam()); }
  void expect_all(const std::function<void(World&)>& body) const {
    expect_ranks(num_ranks(), body, over(std::get<1>(GetParam())));
  }
};

TEST_P(WorldTest, ReducesGathersAndBroadcasts) {
  const int n = num_ranks();
  expect_all([n](World& world) {
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
  });
}

TEST_P(WorldTest, ExchangesTextsAndAgreesOnNumbers) {
  const int n = num_ranks();
  expect_all([n](World& world) {
    const ProcessGroup group = world.group();
    const auto texts = group.all_gather_text(std::string(static_cast<size_t>(group.rank()), 'x'));
    expect(static_cast<int>(texts.size()) == n &&
               texts[static_cast<size_t>(n - 1)].size() == static_cast<size_t>(n - 1),
           "texts");
    expect(group.broadcast_text(group.rank() == 0 ? "from 0" : "no", 0) == "from 0", "text");
    expect(group.agree_max(group.rank() == 1 ? 15 : 0) == 15, "max");
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, WorldTest, ranks_and_transports(), name_of);

using Groups = std::vector<std::vector<int>>;

TEST(SplitTest, EveryGroupReducesItsOwn) {
  expect_ranks(4, [](World& world) {
    const int rank = world.group().rank();
    const ProcessGroup pair = world.split("pair", Groups{{0, 1}, {2, 3}});
    expect(pair.name() == "pair" && pair.size() == 2 && pair.rank() == rank % 2, "place in pair");
    at::Tensor sum = filled(3, rank);
    pair.all_reduce(sum, ReduceOp::kSum);
    expect(sum[2].item<double>() == (rank < 2 ? 1 : 5), "sum of a pair");

    const ProcessGroup comb = world.split("comb", Groups{{0, 2}, {1, 3}});
    at::Tensor largest = filled(1, rank);
    comb.all_reduce(largest, ReduceOp::kMax);
    expect(largest[0].item<double>() == (rank % 2 == 0 ? 2 : 3), "largest of a comb");
    at::Tensor smallest = filled(1, rank);
    comb.all_reduce(smallest, ReduceOp::kMin);
    expect(smallest[0].item<double>() == rank % 2, "smallest of a comb");
  });
}

TEST(SplitTest, RanksCountInTheGroupsOrder) {
  expect_ranks(4, [](World& world) {
    const int rank = world.group().rank();
    const ProcessGroup group = world.split("mixed", Groups{{3, 0, 1}, {2}});
    if (rank == 2) {
      expect(group.size() == 1 && group.rank() == 0, "place of rank 2");
      return;
    }
    const std::vector<int> places = {1, 2, -1, 0};
    expect(group.rank() == places[static_cast<size_t>(rank)], "place");
    at::Tensor all = at::zeros({3});
    group.all_gather(all, filled(1, rank));
    expect(at::equal(all, at::tensor({3.0, 0.0, 1.0}, at::kFloat)), "all_gather");
    at::Tensor text = filled(2, rank);
    group.broadcast(text, 0);
    expect(text[1].item<double>() == 3, "broadcast of the group's first rank");
    at::Tensor part = at::zeros({1});
    group.reduce_scatter(part, at::arange(3, at::kFloat), ReduceOp::kSum);
    expect(part[0].item<double>() == 3 * group.rank(), "reduce_scatter");
    expect(group.broadcast_text(cat("from ", rank), 2) == "from 1",
           "text of the group's last rank");
    group.barrier();
  });
}

TEST(SplitTest, GroupsOfOneAndTheWholeWorldAreGroupsToo) {
  expect_ranks(2, [](World& world) {
    const ProcessGroup alone = world.split("alone", Groups{{0}, {1}});
    at::Tensor x = filled(1, 5);
    alone.all_reduce(x, ReduceOp::kSum);
    expect(x[0].item<double>() == 5 && alone.name() == "alone", "a group of one");
    const ProcessGroup whole = world.split("whole", Groups{{0, 1}});
    whole.all_reduce(x, ReduceOp::kSum);
    expect(x[0].item<double>() == 10 && whole.name() == "whole", "the whole world");
  });
}

TEST(SplitTest, RefusesWhatIsNoPartition) {
  const auto error_of = [](const Groups& groups) -> std::string {
    try {
      World(WorldOptions{}).split("odd", groups);
      return "no error";
    } catch (const UserError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(error_of({}),
              testing::HasSubstr("group odd lacks rank 0: each of the world's 1 ranks"));
  EXPECT_THAT(error_of({{0, 0}}), testing::HasSubstr("group odd has rank 0 twice"));
  EXPECT_THAT(error_of({{0}, {1}}), testing::HasSubstr("group odd has rank 1 twice or outside"));
}

TEST(CheckSameTest, EqualTextsPass) {
  expect_ranks(3, [](World& world) { world.group().check_same("recipe", "a: 1\nb: 2"); });
}

TEST(CheckSameTest, EveryRankNamesTheOneThatDiffers) {
  const RanksResult result = run_ranks(3, [](World& world) {
    world.group().check_same("recipe", world.group().rank() == 2 ? "a: 2" : "a: 1");
  });
  EXPECT_EQ(result.errors, std::vector<std::string>(3, "rank 2 has another recipe than rank 0"));
  EXPECT_EQ(result.kinds, std::vector<std::string>(3, "UserError"));
}

TEST(CheckSameTest, NamesAllThatDiffer) {
  const RanksResult result = run_ranks(3, [](World& world) {
    world.group().check_same("list of files", cat(world.group().rank()));
  });
  EXPECT_EQ(result.errors,
            std::vector<std::string>(3, "ranks 1, 2 have another list of files than rank 0"));
}

TEST(SoloWorldTest, AWorldOfOneNeedsNothing) {
  World world(WorldOptions{});
  at::Tensor x = at::ones({2});
  world.group().all_reduce(x, ReduceOp::kSum);
  EXPECT_EQ(world.group().size(), 1);
  EXPECT_EQ(world.group().all_gather_text("a"), std::vector<std::string>{"a"});
  EXPECT_EQ(world.split("one", Groups{{0}}).name(), "one");
  world.group().check_same("recipe", "a: 1");
  world.fail("nobody hears it");
  world.close();
}

}  // namespace
}  // namespace automodel::comm
