// Files that others use or change while a run needs them: a second run in one checkpoint folder,
// and data files that change.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <memory>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::Program;
using test::ProgramResult;
using test::TemporaryDirectory;
using testing::HasSubstr;

std::vector<std::string> endless(const std::string& folder,
                                 const std::vector<std::string>& more = {}) {
  std::vector<std::string> options = {"--step_scheduler.max_steps=1000000",
                                      "--step_scheduler.num_epochs=1000000",
                                      "--step_scheduler.ckpt_every_steps=1000000"};
  options.insert(options.end(), more.begin(), more.end());
  return test::smoke_run(folder, options);
}

TEST(SharedFolderTest, ASecondRunInAFolderIsRefusedAsLongAsTheFirstLives) {
  for (const int num_ranks : {1, 2}) {
    const TemporaryDirectory folder;
    const std::string place = folder.file("run");
    const test::Spread spread{num_ranks, {}};
    auto first = std::make_unique<Program>(test::on(spread, endless(place)));
    test::wait_for_records(path_join(place, "training.jsonl"));
    const ProgramResult second = test::run_program(test::on(spread, test::smoke_run(place)));
    EXPECT_EQ(second.status, 3) << second.err;
    const pid_t owner = num_ranks == 1 ? first->pid() : test::children_of(first->pid()).at(0);
    EXPECT_THAT(second.err,
                HasSubstr(cat("checkpoint folder ", place, " is in use by another run (process ",
                              owner, " on host ")));
    EXPECT_THAT(second.err, HasSubstr("choose another checkpoint.checkpoint_dir"));
    // The first goes on, and its log is its own.
    EXPECT_FALSE(path_exists(path_join(place, "training.jsonl.old")));
    ::kill(first->pid(), SIGKILL);
    first->wait();
    const ProgramResult third = test::run_program(test::on(spread, test::smoke_run(place)));
    EXPECT_EQ(third.status, 0) << third.err;
  }
}

class ChangedDataTest : public testing::Test {
 protected:
  /// A run on this test's own copy of the data.
  std::vector<std::string> with_data(std::vector<std::string> arguments) const {
    arguments.push_back(cat("--dataset.path_or_dataset_id=", data_));
    return arguments;
  }

  TemporaryDirectory folder_;
  std::string rows_ = read_file(test::source_file("tests/recipes/data/rows.jsonl"));
  std::string data_ = folder_.write("rows.jsonl", rows_);
  std::string place_ = folder_.file("run");
};

TEST_F(ChangedDataTest, AFileThatIsCutInARunIsItsErrorAndNoCrash) {
  for (const int num_ranks : {1, 2}) {
    folder_.write("rows.jsonl", rows_);
    const std::string place = folder_.file(cat("run", num_ranks));
    Program program(test::on({num_ranks, {}}, with_data(endless(place))));
    test::wait_for_records(path_join(place, "training.jsonl"));
    std::filesystem::resize_file(data_, 10);
    const ProgramResult run = program.wait();
    EXPECT_EQ(run.status, 3) << run.err;
    EXPECT_THAT(run.err, HasSubstr(cat(data_, " changed while it was in use: it had ", rows_.size(),
                                       " bytes, it has 10")));
  }
}

TEST_F(ChangedDataTest, ContinuingOnOtherDataIsRefused) {
  const auto run_again = [&](int steps) {
    return test::run_program(with_data(
        test::smoke_run(place_, {cat("--step_scheduler.max_steps=", steps),
                                 "--step_scheduler.num_epochs=9", "--lr_scheduler=none"})));
  };
  ASSERT_EQ(run_again(3).status, 0);
  // As many rows of the same lengths, one letter another.
  std::string changed = rows_;
  const size_t letter = changed.find("a", changed.find("answer") + 10);
  changed[letter] = 'e';
  folder_.write("rows.jsonl", changed);
  const ProgramResult refused = run_again(6);
  EXPECT_EQ(refused.status, 3) << refused.out;
  EXPECT_THAT(refused.err,
              HasSubstr(cat(data_, " is not the data file that the checkpoint was made with")));
  // The same bytes in another file, written at another time, are the same data.
  data_ = folder_.write("elsewhere/rows.jsonl", rows_);
  const ProgramResult run = run_again(6);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("resumed from "));
}

TEST_F(ChangedDataTest, ContinuesOnMendedAndOnMoreRowsWhereThatIsAllowed) {
  const auto run_again = [&](const std::string& steps) {
    return test::run_program(with_data(
        test::smoke_run(place_, {steps, "--step_scheduler.num_epochs=1", "--lr_scheduler=none",
                                 "--checkpoint.allow_changed_data=true"})));
  };
  const auto num_records = [&] {
    return test::read_records(path_join(place_, "training.jsonl")).size();
  };
  ASSERT_EQ(run_again("--step_scheduler.max_steps=1").status, 0);
  std::string mended = rows_;
  mended[mended.find("a", mended.find("answer") + 10)] = 'e';
  folder_.write("rows.jsonl", mended);
  const ProgramResult continued = run_again("--step_scheduler.max_steps=2");
  EXPECT_EQ(continued.status, 0) << continued.err;
  EXPECT_THAT(continued.out + continued.err, HasSubstr("; it is allowed to change"));
  EXPECT_THAT(continued.out, HasSubstr("changed since the last run here: "));
  EXPECT_THAT(continued.out, HasSubstr("step_scheduler.max_steps 1 -> 2"));
  EXPECT_EQ(num_records(), 2u);
  // Twice the rows: all of them are an epoch, beside the two steps that were done.
  folder_.write("rows.jsonl", mended + mended);
  const ProgramResult longer = run_again("--step_scheduler.max_steps=none");
  EXPECT_EQ(longer.status, 0) << longer.err;
  EXPECT_THAT(longer.out + longer.err, HasSubstr("epoch 0 begins anew with what is there now"));
  const auto num_rows = static_cast<size_t>(std::ranges::count(mended + mended, '\n'));
  constexpr size_t kRowsOfAStep = 4;
  EXPECT_EQ(num_records(), 2 + (num_rows + kRowsOfAStep - 1) / kRowsOfAStep);
}

}  // namespace
}  // namespace automodel::recipes
