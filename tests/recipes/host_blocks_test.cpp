#include "recipes/run/host_blocks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
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
  at::Tensor none;
  HostBlocks blocks(needed, at::Device(at::kCUDA, 0), none);
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

TEST(HostBlocksTest, ACpusCopiesLieInMemoryThatIsKept) {
  at::Tensor kept;
  const auto copies = [&kept](int64_t num_bytes) {
    HostBlocks blocks(num_bytes, at::kCPU, kept);
    return std::vector<at::Tensor>{blocks.take({8}, at::kFloat),
                                   blocks.take({2, 8}, at::kBFloat16)};
  };
  const std::vector<at::Tensor> first = copies(128);
  EXPECT_EQ(kept.numel(), 128);
  EXPECT_EQ(first[0].data_ptr(), kept.data_ptr());
  EXPECT_EQ(first[1].data_ptr(), kept.data_ptr<uint8_t>() + 64);
  EXPECT_EQ(copies(128)[1].data_ptr(), first[1].data_ptr());
  copies(512);  // which need more
  EXPECT_EQ(kept.numel(), 512);
}

/// As /proc counts a mapping's pages in memory.
int64_t resident_bytes(const at::Tensor& block) {
  const auto begin = reinterpret_cast<uintptr_t>(block.data_ptr()) / 4096 * 4096;
  const auto num_pages = static_cast<size_t>(block.nbytes()) / 4096;
  std::vector<unsigned char> pages(num_pages);
  EXPECT_EQ(::mincore(reinterpret_cast<void*>(begin), num_pages * 4096, pages.data()), 0);
  return 4096 * std::count_if(pages.begin(), pages.end(),
                              [](unsigned char page) { return (page & 1) != 0; });
}

TEST(HostBlocksTest, TouchedMemoryIsThere) {
  constexpr int64_t kBytes = 64 << 20;  // malloc maps so much anew
  at::Tensor kept;
  HostBlocks(kBytes, at::kCPU, kept);
  EXPECT_LT(resident_bytes(kept), kBytes / 2);
  HostBlocks::touch(kept);
  EXPECT_EQ(resident_bytes(kept), kBytes);
}

}  // namespace
}  // namespace automodel::recipes
