#include "tensor/page_arena.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace automodel::tensor {
namespace {

const auto kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

TEST(PageArenaTest, AFreedPieceServesTheNextOfItsSize) {
  PageArena arena;
  void* const first = arena.take(3 * kPage - 5);
  arena.give(first);
  EXPECT_EQ(arena.take(3 * kPage), first);
  EXPECT_EQ(arena.counts().num_mapped, 1U);
  EXPECT_EQ(arena.counts().in_use, 3 * kPage);
}

TEST(PageArenaTest, ALargerRunIsSplitAndGrowsTogetherAgain) {
  PageArena arena;
  void* const whole = arena.take(8 * kPage);
  arena.give(whole);
  auto* const a = static_cast<std::byte*>(arena.take(2 * kPage));
  auto* const b = static_cast<std::byte*>(arena.take(6 * kPage));
  EXPECT_EQ(a, whole);
  EXPECT_EQ(b, a + 2 * kPage);
  arena.give(a);
  arena.give(b);
  EXPECT_EQ(arena.take(8 * kPage), whole);
  EXPECT_EQ(arena.counts().num_mapped, 1U);
}

TEST(PageArenaTest, NoMoreIsKeptThanWasEverInUse) {
  PageArena arena;
  void* const a = arena.take(4 * kPage);
  void* const b = arena.take(4 * kPage);
  arena.give(a);
  arena.give(b);
  EXPECT_EQ(arena.counts().kept, 8 * kPage);
  void* const c = arena.take(10 * kPage);  // fits no freed run of either four or eight pages
  EXPECT_EQ(arena.counts().kept, 0U);
  EXPECT_EQ(arena.counts().peak_in_use, 10 * kPage);
  arena.give(c);
}

TEST(PageArenaTest, WhatFitsNowhereReturnsAsMuchAsItTakes) {
  PageArena arena;
  void* const a = arena.take(4 * kPage);
  void* const between = arena.take(kPage);
  void* const b = arena.take(4 * kPage);
  arena.give(a);
  arena.give(b);
  arena.take(6 * kPage);  // at most nine pages were in use: seven are, two of the freed eight stay
  const PageArena::Counts counts = arena.counts();
  EXPECT_LE(counts.in_use + counts.kept, counts.peak_in_use);
  EXPECT_EQ(counts.peak_in_use, 9 * kPage);
  arena.give(between);
}

TEST(PageArenaTest, LeavesOthersMemoryAlone) {
  PageArena arena;
  int other = 0;
  EXPECT_FALSE(arena.give(&other));
  void* const own = arena.take(1);
  EXPECT_TRUE(arena.give(own));
  EXPECT_FALSE(arena.give(own));
}

/// In a process of its own: what it turns on stays.
TEST(PageArenaTest, TensorsLiveInItWhateverTheirSize) {
  EXPECT_EXIT(
      {
        use_page_arena_for_tensors();
        c10::Allocator* const allocator = c10::GetAllocator(c10::kCPU);
        for (const size_t bytes : {size_t{8}, size_t{1} << 20}) {
          void* const raw = allocator->raw_allocate(bytes);
          std::memset(raw, 1, bytes);
          allocator->raw_deallocate(raw);
        }
        const at::Tensor narrow = at::ones({300, 300}, at::kBFloat16);
        const double sum = at::mm(narrow, narrow).to(at::kFloat).sum().item<double>();
        std::exit(sum == 300.0 * 300 * 300 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(PageArenaTest, PiecesNeverOverlapWhateverTheOrder) {
  PageArena arena;
  std::mt19937 random(7);
  struct Piece {
    unsigned char* data;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Piece> pieces;
  for (int i = 0; i < 4000; ++i) {
    if (pieces.size() < 40 && random() % 2 == 0) {
      const size_t bytes = 1 + random() % (20 * kPage);
      auto* const data = static_cast<unsigned char*>(arena.take(bytes));
      const auto mark = static_cast<unsigned char>(random());
      std::memset(data, mark, bytes);
      pieces.push_back({data, bytes, mark});
    } else if (!pieces.empty()) {
      const size_t which = random() % pieces.size();
      const Piece piece = pieces[which];
      EXPECT_EQ(piece.data[0], piece.mark);
      EXPECT_EQ(piece.data[piece.bytes - 1], piece.mark);
      arena.give(piece.data);
      pieces[which] = pieces.back();
      pieces.pop_back();
    }
    const PageArena::Counts counts = arena.counts();
    ASSERT_LE(counts.in_use + counts.kept, counts.peak_in_use);
  }
  EXPECT_GT(arena.counts().num_returned, 0U);
}

TEST(PageArenaTest, ThreadsTakeAndGiveAtOnce) {
  PageArena arena;
  std::atomic<int64_t> num_torn = 0;
  const auto work = [&](unsigned char mark) {
    std::mt19937 random(mark);
    std::vector<std::pair<unsigned char*, size_t>> pieces;
    for (int i = 0; i < 3000; ++i) {
      if (pieces.size() < 8 && random() % 2 == 0) {
        const size_t bytes = 1 + random() % (6 * kPage);
        pieces.emplace_back(static_cast<unsigned char*>(arena.take(bytes)), bytes);
        std::memset(pieces.back().first, mark, bytes);
      } else if (!pieces.empty()) {
        const auto [data, bytes] = pieces.back();
        const bool is_whole =
            std::all_of(data, data + bytes, [&](unsigned char byte) { return byte == mark; });
        if (!is_whole) ++num_torn;
        arena.give(data);
        pieces.pop_back();
      }
    }
    for (const auto& [data, bytes] : pieces) arena.give(data);
  };
  std::vector<std::thread> threads;
  for (unsigned char mark = 1; mark <= 4; ++mark) threads.emplace_back(work, mark);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_torn, 0);
  EXPECT_EQ(arena.counts().in_use, 0U);
}

}  // namespace
}  // namespace automodel::tensor
