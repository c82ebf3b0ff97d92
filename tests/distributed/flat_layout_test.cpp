#include "distributed/fsdp/flat_layout.h"

#include <gtest/gtest.h>

namespace automodel::distributed {
namespace {

TEST(FlatLayoutTest, EveryParameterBeginsOnA64ByteBorder) {
  const std::vector<LayoutItem> items = {{"a", 3}, {"b", 17}, {"c", 16}};
  const FlatLayout layout = lay_out(items, 4, 1);
  EXPECT_EQ(layout.entries[0].offset, 0);
  EXPECT_EQ(layout.entries[1].offset, 16);
  EXPECT_EQ(layout.entries[2].offset, 48);
  EXPECT_EQ(layout.numel, 64);
}

TEST(FlatLayoutTest, RanksOwnEqualAlignedRanges) {
  const std::vector<LayoutItem> items = {{"a", 33}};
  const FlatLayout layout = lay_out(items, 2, 3);
  EXPECT_EQ(layout.numel, 96);
  EXPECT_EQ(layout.range_numel(3), 32);
}

TEST(FlatLayoutTest, BordersAreMultiplesOfAskedElements) {
  const std::vector<LayoutItem> items = {{"a", 300}, {"b", 10}};
  const FlatLayout layout = lay_out(items, 4, 3, 256);
  EXPECT_EQ(layout.entries[1].offset, 512);
  EXPECT_EQ(layout.numel, 768);
  EXPECT_EQ(layout.range_numel(3), 256);
  EXPECT_EQ(lay_out(items, 4, 2, 24).entries[1].offset, 336);  // of 16 and of 24
}

TEST(FlatLayoutTest, BucketsCoverEveryElementOnce) {
  const auto buckets = make_buckets(1000, 4, 400, 1200);
  ASSERT_EQ(buckets.size(), 4u);
  EXPECT_EQ(buckets[0].end, 100);
  EXPECT_EQ(buckets[1].begin, 100);
  EXPECT_EQ(buckets[1].end, 400);
  EXPECT_EQ(buckets[3].end, 1000);
}

}  // namespace
}  // namespace automodel::distributed
