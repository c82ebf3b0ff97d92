#include "recipes/records/record_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/text.h"
#include "support/temporary_directory.h"

namespace automodel::recipes {
namespace {

using test::TemporaryDirectory;

std::string record(int64_t step) {
  return cat("{\"step\": ", step, ", \"loss\": ", step % 7, ".25}\n");
}

/// The records of steps in [first, end).
std::string records(int64_t first, int64_t end) {
  std::string text;
  for (int64_t step = first; step < end; ++step) text += record(step);
  return text;
}

/// What is left of a file with these bytes.
std::string left_of(const std::string& bytes, int64_t first_step) {
  const TemporaryDirectory folder;
  folder.write("log.jsonl", bytes);
  drop_records_from(folder.file("log.jsonl"), first_step);
  return read_file(folder.file("log.jsonl"));
}

uint64_t inode_of(const std::string& path) {
  struct stat info {};
  ::stat(path.c_str(), &info);
  return info.st_ino;
}

TEST(RecordCutTest, TheCutIsWhereTheStepsReachTheFirst) {
  // From one piece of the file to some, as the search meets them.
  for (const int64_t count : {1, 2, 3, 600, 5000}) {
    const std::string all = records(0, count);
    for (const int64_t first :
         {int64_t{0}, int64_t{1}, count / 3, count / 2, count - 1, count, count + 1}) {
      EXPECT_TRUE(left_of(all, first) == records(0, std::min(first, count)))
          << first << " of " << count;
    }
  }
}

TEST(RecordCutTest, StepsMayBeginAnywhereAndLeaveSomeOut) {
  std::string all, wanted;
  for (int64_t step = 40; step < 9000; step += 7) {
    all += record(step);
    if (step < 3000) wanted += record(step);
  }
  EXPECT_TRUE(left_of(all, 3000) == wanted);
  EXPECT_EQ(left_of(all, 40), "");
}

TEST(RecordCutTest, HalfALineAtTheEndGoesAndOneInTheMiddleStays) {
  for (const int64_t count : {4, 4000}) {
    const std::string all = records(0, count);
    EXPECT_TRUE(left_of(all + "{\"step\": 9", count) == all) << count;
    EXPECT_TRUE(left_of(all + "{\"step\": 9\n", count) == all) << count;
    const std::string torn = all + "{\"step\n" + records(count + 1, 2 * count);
    EXPECT_TRUE(left_of(torn, 2 * count) == torn) << count;
    EXPECT_TRUE(left_of(torn, count + 1) == all) << count;
  }
  EXPECT_EQ(left_of("", 3), "");
  EXPECT_EQ(left_of("{\"st", 3), "");
  EXPECT_EQ(left_of("\n\n", 3), "");
}

TEST(RecordCutTest, StepsThatDoNotAscendAreLookedForInTheWholeFile) {
  for (const int64_t count : {6, 5000}) {
    const int64_t first = count / 2;
    const std::string twice = records(0, count) + records(0, count);
    EXPECT_TRUE(left_of(twice, first) == records(0, first) + records(0, first)) << count;
  }
}

TEST(RecordCutTest, AMillionRecordsAreCutInPlaceAndAtOnce) {
  const TemporaryDirectory folder;
  constexpr int64_t kSteps = 1000000;
  folder.write("log.jsonl", records(0, kSteps));
  const std::string path = folder.file("log.jsonl");
  const uint64_t inode = inode_of(path);
  for (const int64_t first : {kSteps - 3, kSteps / 2, int64_t{10}}) {
    const double begin = monotonic_seconds();
    drop_records_from(path, first);
    const double seconds = monotonic_seconds() - begin;
    std::printf("first step %lld: %.1f ms\n", static_cast<long long>(first), 1e3 * seconds);
    // As long as the slowest machine of CI needs; a parse of all lines takes seconds.
    EXPECT_LT(seconds, 0.05) << first;
  }
  EXPECT_EQ(read_file(path), records(0, 10));
  EXPECT_EQ(inode_of(path), inode);
}

}  // namespace
}  // namespace automodel::recipes
