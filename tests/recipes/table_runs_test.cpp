// Ranks of one machine over tables of each kind: they are forked after the recipe's check has
// looked at the tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(TableRunsTest, RanksReadEveryKindOfTable) {
  const TemporaryDirectory folder;
  folder.write("rows.csv", rows_text(','));
  folder.write("rows.tsv", rows_text('\t'));
  const std::vector<std::pair<std::string, std::vector<std::string>>> tables = {
      {folder.file("rows.csv"), {}},
      {folder.file("rows.tsv"), {}},
      {test::source_file("tests/tables/data/squad.parquet"),
       {"--dataset.column_mapping.question=context", "--dataset.column_mapping.answer=question"}}};
  for (const auto& [path, changes] : tables) {
    SCOPED_TRACE(path);
    std::vector<std::string> more = {cat("--dataset.path_or_dataset_id=", path),
                                     "--step_scheduler.max_steps=1", "--checkpoint.enabled=false"};
    more.insert(more.end(), changes.begin(), changes.end());
    const ProgramResult run =
        test::run_program(test::on({2, {}}, test::smoke_run(folder.file("run"), more)));
    EXPECT_EQ(run.status, 0) << run.err;
  }
}

}  // namespace
}  // namespace automodel::recipes
