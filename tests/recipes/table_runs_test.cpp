// Ranks of one machine over tables of each kind: they are forked after the recipe's check has
// looked at the tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/file.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::TemporaryDirectory;

/// Rows of a question and an answer, each in a line of its own.
std::string rows_text(char delimiter) {
  std::string text = cat("question", delimiter, "answer\n");
  for (int i = 0; i < 16; ++i)
    text += cat("What is ", i, " plus one?", delimiter, "It is ", i + 1, ".\n");
  return text;
}

/// Two ranks train a step on the rows of the table `path`; tables are copied into `cache`.
void expect_run(const std::string& path, const std::string& cache,
                const std::vector<std::string>& changes = {}) {
  SCOPED_TRACE(path);
  const TemporaryDirectory folder;
  std::vector<std::string> more = {cat("--dataset.path_or_dataset_id=", path),
                                   "--step_scheduler.max_steps=1", "--checkpoint.enabled=false"};
  more.insert(more.end(), changes.begin(), changes.end());
  const ProgramResult run = test::run_program(
      test::on({2, {}}, test::smoke_run(folder.file("run"), more)), {"HF_DATASETS_CACHE=" + cache});
  EXPECT_EQ(run.status, 0) << run.err;
}

TEST(TableRunsTest, RanksReadEveryKindOfTable) {
  const TemporaryDirectory folder;
  folder.write("rows.csv", rows_text(','));
  folder.write("rows.tsv", rows_text('\t'));
  expect_run(folder.file("rows.csv"), folder.file("cache"));
  expect_run(folder.file("rows.tsv"), folder.file("cache"));

  const std::vector<std::string> squad = {"--dataset.column_mapping.question=context",
                                          "--dataset.column_mapping.answer=question"};
  const std::string copies = folder.file("cache_of_squad");
  expect_run(test::source_file("tests/tables/data/squad.parquet"), copies, squad);
  int num_copies = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(copies)) {
    if (entry.path().extension() != ".arrow") continue;
    ++num_copies;
    const std::string path = folder.file("squad.arrow");
    std::filesystem::copy_file(entry.path(), path);
    expect_run(path, folder.file("cache"), squad);
  }
  EXPECT_EQ(num_copies, 1);
}

}  // namespace
}  // namespace automodel::recipes
