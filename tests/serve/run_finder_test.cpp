#include "serve/run_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "core/text.h"
#include "support/temporary_directory.h"

namespace automodel::serve {
namespace {

using testing::ElementsAre;

std::vector<std::string> ids(const FoundRuns& found) {
  std::vector<std::string> all;
  for (const FoundRun& run : found.runs) all.push_back(run.id);
  return all;
}

TEST(RunFinderTest, RunsAreFoundAtAnyDepthAndNotInsideRuns) {
  const test::TemporaryDirectory root;
  root.write("b/run.json", "{}");
  root.write("a/sweep/1/training.jsonl", "");
  root.write("a/sweep/1/epoch_0_step_1/run.json", "{}");
  root.write("a/notes/todo.txt", "");
  root.write(".hidden/run.json", "{}");
  EXPECT_THAT(ids(find_runs(root.path())), ElementsAre("a/sweep/1", "b"));
}

TEST(RunFinderTest, TheFolderItselfMayBeARun) {
  const test::TemporaryDirectory root;
  root.write("run.json", "{}");
  root.write("more/run.json", "{}");
  EXPECT_THAT(ids(find_runs(root.path())), ElementsAre("", "more"));
}

TEST(RunFinderTest, LinksLeadNowhere) {
  const test::TemporaryDirectory outside, root;
  outside.write("secret/run.json", "{}");
  outside.write("secret/training.jsonl", "{}");
  std::filesystem::create_directory_symlink(outside.file("secret"), root.file("linked"));
  root.write("good/run.json", "{}");
  for (const char* name : {"run.json", "training.jsonl", "validation_x.jsonl", "events.jsonl"}) {
    const std::string folder = cat("bad_", name);
    root.write(cat(folder, "/training.jsonl"), "");
    std::filesystem::remove(root.file(cat(folder, "/", name)));
    root.write(cat(folder, "/", name == std::string("run.json") ? "training.jsonl" : "run.json"),
               "{}");
    std::filesystem::create_symlink(outside.file("secret/training.jsonl"),
                                    root.file(cat(folder, "/", name)));
  }
  const FoundRuns found = find_runs(root.path());
  EXPECT_THAT(ids(found), ElementsAre("good"));
  EXPECT_EQ(found.num_linked, 4);
}

TEST(RunFinderTest, APipeThatNeverEndsIsNotOpened) {
  const test::TemporaryDirectory root;
  root.write("a/run.json", "{}");
  ASSERT_EQ(::mkfifo(root.file("a/training.jsonl").c_str(), 0600), 0);
  EXPECT_EQ(find_runs(root.path()).num_linked, 1);
}

TEST(RunFinderTest, TheWalkHasLimits) {
  const test::TemporaryDirectory root;
  for (int i = 0; i < 10; ++i) root.write(cat("f", i, "/run.json"), "{}");
  root.write("deep/er/still/run.json", "{}");
  EXPECT_FALSE(find_runs(root.path()).has_reached_limit);
  EXPECT_TRUE(find_runs(root.path(), {.depth = 8, .num_folders = 5}).has_reached_limit);
  const FoundRuns flat = find_runs(root.path(), {.depth = 1, .num_folders = 100});
  EXPECT_TRUE(flat.has_reached_limit);
  EXPECT_EQ(flat.runs.size(), 10U);
}

}  // namespace
}  // namespace automodel::serve
