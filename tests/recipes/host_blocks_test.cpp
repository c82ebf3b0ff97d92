#include "recipes/run/host_blocks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace automodel::recipes {
namespace {

TEST(HostBlocksTest, ABlockIsAPowerOfTwoThatIsNoMoreThanIsLeft) {
  EXPECT_EQ(HostBlocks::block_size(100, 1000), 512);
  EXPECT_EQ(HostBlocks::block_size(600, 1000), 1024);  // unless the tensor needs more
  EXPECT_EQ(HostBlocks::block_size(512, 512), 512);
  EXPECT_EQ(HostBlocks::block_size(0, 0), 1);
}

/// Where a device's memory cannot be locked, as here, the blocks are of the usual memory.
TEST(HostBlocksTest, TensorsLieApartInBlocksOfLittleMoreThanTheyNeed) {
  const std::vector<int64_t> lengths = {1000, 300, 7, 4096, 250, 33};
  int64_t needed = 0;
  for (const int64_t length : lengths) needed += HostBlocks::room_of(4 * length);
  HostBlocks blocks(needed, at::Device(at::kCUDA, 0));
  std::vector<at::Tensor> tensors;
  for (const int64_t length : lengths) {
    tensors.push_back(blocks.take({length}, at::kFloat));
    tensors.back().fill_(static_cast<float>(length));
  }
  std::set<void*> seen;
  int64_t taken = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    EXPECT_TRUE(at::equal(tensors[i], at::full({lengths[i]}, static_cast<float>(lengths[i]))));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensors[i].data_ptr()) % 16, 0U);
    const auto& block = tensors[i].storage();
    if (seen.insert(block.unsafeGetStorageImpl()).second) {
      taken += static_cast<int64_t>(block.nbytes());
    }
  }
  EXPECT_LT(seen.size(), lengths.size());
  EXPECT_LE(taken, 2 * needed);
  EXPECT_EQ(blocks.take({2, 3}, at::kBFloat16).sizes(), at::IntArrayRef({2, 3}));
}

TEST(HostBlocksTest, ACpusCopiesAreTensorsOfTheirOwn) {
  HostBlocks blocks(64, at::kCPU);
  const at::Tensor one = blocks.take({8}, at::kFloat), other = blocks.take({8}, at::kFloat);
  EXPECT_EQ(one.storage().nbytes(), 32U);
  EXPECT_FALSE(one.storage().is_alias_of(other.storage()));
}

}  // namespace
}  // namespace automodel::recipes
