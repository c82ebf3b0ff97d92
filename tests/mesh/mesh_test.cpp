#include "mesh/mesh.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace automodel::mesh {
namespace {

using Groups = std::vector<std::vector<int>>;

MeshSizes sizes_2_2_2() {
  return {.pp = 1, .dp_replicate = 2, .dp_shard = 2, .cp = 1, .tp = 2};
}

std::string error_of(const SizeRequest& request, int64_t world_size) {
  try {
    infer_sizes(request, world_size);
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

TEST(MeshSizesTest, DataParallelRanksAreAllThatAreLeft) {
  const MeshSizes sizes = infer_sizes({.dp_replicate = 2, .pp = 2, .cp = 2, .tp = 2}, 32);
  EXPECT_EQ(sizes, (MeshSizes{.pp = 2, .dp_replicate = 2, .dp_shard = 2, .cp = 2, .tp = 2}));
  EXPECT_EQ(sizes.dp(), 4);
  EXPECT_EQ(sizes.world_size(), 32);
}

TEST(MeshSizesTest, SizesThatDoNotMultiplyAreNamed) {
  EXPECT_EQ(error_of({.tp = 3}, 4),
            "world_size (4) must be divisible by (tp_size * cp_size * pp_size) (3 * 1 * 1 = 3)");
}

TEST(MeshSizesTest, SizesBelowOneAreNamed) {
  EXPECT_EQ(error_of({.tp = 0}, 4), "tp_size is 0; it must be at least 1");
  EXPECT_EQ(error_of({.tp = -2}, 4), "tp_size is -2; it must be at least 1");
  EXPECT_EQ(error_of({.cp = 0}, 4), "cp_size is 0; it must be at least 1");
  EXPECT_EQ(error_of({.pp = 0}, 4), "pp_size is 0; it must be at least 1");
  EXPECT_EQ(error_of({.dp = 0}, 4), "dp_size is 0; it must be at least 1");
  EXPECT_EQ(error_of({.dp_replicate = 0}, 4), "dp_replicate_size is 0; it must be at least 1");
  EXPECT_EQ(error_of({.ep = 0}, 4), "ep_size is 0; it must be at least 1");
  try {
    const Mesh mesh(MeshSizes{.dp_shard = 0});
    FAIL() << "made";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "mesh axis dp_shard is 0; it must be at least 1");
  }
}

TEST(MeshSizesTest, SizesWhoseProductIsBeyondNumbersAreNamed) {
  const int64_t large = int64_t{1} << 32;
  EXPECT_EQ(error_of({.pp = large, .tp = large}, 4),
            "world_size (4) must be divisible by (tp_size * cp_size * pp_size) (4294967296 * 1 * "
            "4294967296 = more than 2^63)");
}

TEST(MeshSizesTest, AGivenDataParallelSizeMustFit) {
  EXPECT_EQ(error_of({.dp = 3}, 4),
            "dp_size 3 does not fit: 4 ranks / (tp 1 * cp 1 * pp 1) = 4; set it to that or to "
            "none");
}

TEST(MeshSizesTest, ReplicasMustDivideTheDataParallelRanks) {
  EXPECT_EQ(error_of({.dp_replicate = 3}, 4),
            "dp_size must be a multiple of dp_replicate_size: dp_size is 4, dp_replicate_size 3");
}

TEST(MeshSizesTest, ReplicasOnlyAreRefused) {
  EXPECT_EQ(error_of({.dp_replicate = 4}, 4),
            "dp_replicate_size=4 must be less than dp_size=4 since DDP usecase is not supported "
            "by FSDP2");
}

TEST(MeshSizesTest, ExpertsMustDivideAStage) {
  EXPECT_EQ(error_of({.pp = 2, .ep = 3}, 8),
            "ep_size 3 does not divide the 4 ranks of a pipeline stage (dp * cp * tp)");
}

TEST(MeshTest, TensorParallelNeighboursAreAdjacent) {
  const Mesh mesh(sizes_2_2_2());
  EXPECT_EQ(mesh.groups(*axes_of("tp")), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(mesh.groups(*axes_of("dp_shard")), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(mesh.groups(*axes_of("dp_replicate")), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(MeshTest, JoinedAxesKeepRowMajorOrder) {
  const Mesh mesh(sizes_2_2_2());
  EXPECT_EQ(mesh.groups(*axes_of("dp")), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  const Mesh with_context({.pp = 1, .dp_replicate = 1, .dp_shard = 2, .cp = 2, .tp = 1});
  EXPECT_EQ(with_context.groups(*axes_of("dp_shard_cp")), (Groups{{0, 1, 2, 3}}));
  EXPECT_EQ(with_context.groups(*axes_of("dp_cp")), (Groups{{0, 1, 2, 3}}));
}

TEST(MeshTest, EveryRankFindsItselfInItsGroup) {
  const Mesh mesh({.pp = 2, .dp_replicate = 2, .dp_shard = 3, .cp = 2, .tp = 2});
  for (const char* name :
       {"pp", "dp_replicate", "dp_shard", "cp", "tp", "dp", "dp_shard_cp", "dp_cp"}) {
    const auto axes = *axes_of(name);
    for (const int rank : mesh.ranks()) {
      const auto group = mesh.group_of(rank, axes);
      EXPECT_EQ(group[static_cast<size_t>(mesh.index_in_group(rank, axes))], rank) << name;
    }
  }
}

TEST(MeshTest, CoordinatesAndRanksAreInverse) {
  const Mesh mesh({.pp = 2, .dp_replicate = 1, .dp_shard = 2, .cp = 3, .tp = 2});
  EXPECT_EQ(mesh.coordinate(23), (Coordinate{1, 0, 1, 2, 1}));
  for (const int rank : mesh.ranks()) EXPECT_EQ(mesh.rank_at(mesh.coordinate(rank)), rank);
}

TEST(MeshTest, CoversASubsetOfRanks) {
  const Mesh mesh({.pp = 1, .dp_replicate = 1, .dp_shard = 2, .cp = 1, .tp = 2}, {4, 5, 6, 7});
  EXPECT_EQ(mesh.groups(*axes_of("dp_shard")), (Groups{{4, 6}, {5, 7}}));
}

TEST(MeshTest, RefusesRanksThatDoNotFit) {
  const auto text = [](std::vector<int> ranks) -> std::string {
    try {
      const Mesh mesh({.pp = 1, .dp_replicate = 1, .dp_shard = 2, .cp = 1, .tp = 1},
                      std::move(ranks));
      return "";
    } catch (const UserError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(text({0, 1, 2}), "mesh ranks (3) must match mesh size (2)");
  EXPECT_EQ(text({1, 1}), "mesh ranks must be unique");
}

TEST(MeshTest, UnknownAxisNamesHaveNoAxes) {
  EXPECT_FALSE(axes_of("ep2"));
}

}  // namespace
}  // namespace automodel::mesh
