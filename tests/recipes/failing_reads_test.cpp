// Reads that fail, of weights, data, tokenizer and recipe in a fresh run and of checkpoints in one
// that continues: the run says which file it is, or takes an older checkpoint, and the run that is
// started again ends with the bits of one that nobody disturbed.
//
// A few reads are tried; scripts/failing_calls.sh tries all.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <regex>

#include "recipes/fault_extent.h"
#include "recipes/saving_runs.h"
#include "support/served_program.h"

namespace automodel::recipes {
namespace {

namespace fs = std::filesystem;

using test::CountedCall;
using test::FailingCalls;
using test::FaultExtent;
using test::NamedSpread;
using test::outcome_of;
using test::ProgramResult;
using test::RunOutcome;
using test::TemporaryDirectory;
using testing::HasSubstr;

class FailingReadsTest : public testing::TestWithParam<NamedSpread> {
 protected:
  FailingReadsTest() {
    // All that a run reads lies in one folder, in which reads count.
    fs::copy(test::source_file("tests/recipes/data/tiny_llama"), folder_.file("model"));
    fs::copy(test::source_file("configs/quickstart_tokenizer"), folder_.file("tokenizer"));
    fs::copy(test::source_file("tests/recipes/data/rows.jsonl"), folder_.file("rows.jsonl"));
    std::string recipe = read_file(test::write_saving_recipe(folder_));
    const std::string root(test::source_file("."));
    recipe =
        replace_all(recipe, cat(root, "/tests/recipes/data/tiny_llama"), folder_.file("model"));
    recipe = replace_all(recipe, cat(root, "/tests/recipes/data/rows"), folder_.file("rows"));
    recipe =
        replace_all(recipe, cat(root, "/configs/quickstart_tokenizer"), folder_.file("tokenizer"));
    recipe_ = folder_.write("saving.yaml", recipe);
  }

  std::vector<std::string> run() const {
    std::vector<std::string> arguments = test::saving_run(recipe_, place_, GetParam().spread);
    arguments.emplace_back("--step_scheduler.ckpt_every_steps=1");
    arguments.emplace_back("--checkpoint.max_recent_checkpoints=2");
    return arguments;
  }

  FailingCalls counted() const {
    return {.folder = folder_.path(), .log = folder_.file("calls.log"), .has_reads = true};
  }

  /// Makes the folder of results what it is before a run: `begin` or nothing.
  void restore(const std::string& begin) const {
    remove_tree(place_);
    remove_tree(counted().log);
    if (!begin.empty())
      fs::copy(begin, place_, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }

  /// The calls of an undisturbed run.
  std::vector<CountedCall> calls_of_run() {
    const ProgramResult whole = program_.run(run(), counted().environment());
    EXPECT_EQ(whole.status, 0) << whole.err;
    if (whole.status == 0 && wanted_.training.empty()) wanted_ = outcome_of(place_);
    return test::read_calls(counted().log);
  }

  /// A folder in which the fourth step is still to be logged, with two checkpoints.
  std::string begun(const std::vector<CountedCall>& calls) {
    FailingCalls killed = counted();
    killed.rank = 0;
    killed.at = test::numbers_of(calls, 0, "write", "/training.jsonl").back();
    killed.action = "kill";
    restore("");
    EXPECT_EQ(program_.run(run(), killed.environment()).status, 128 + SIGKILL);
    EXPECT_THAT(test::checkpoints_in(place_, true), testing::SizeIs(2));
    const std::string begin = folder_.file("begin");
    fs::rename(place_, begin);
    return begin;
  }

  /// One run whose n-th call on a rank, a read, fails, and the one that is started again.
  void meet(const std::string& begin, int rank, int64_t at) {
    restore(begin);
    FailingCalls failing = counted();
    failing.rank = rank;
    failing.at = at;
    failing.action = "fail:5";
    const ProgramResult disturbed = program_.run(run(), failing.environment());
    // Several threads read: which file it was is known from this run alone. The first process,
    // whose calls are numbered on as rank 0's, may come to the same number when it tells of the
    // failure.
    std::string call = "none", path;
    for (const CountedCall& it : test::read_calls(failing.log)) {
      if (it.rank != rank || it.number != at) continue;
      call = it.call, path = it.path;
      break;
    }
    SCOPED_TRACE(cat("call ", at, " of rank ", rank, ": ", call, " ", path));
    const std::string name =
        std::regex_replace(replace_all(path, folder_.path(), ""), std::regex("[0-9a-f]{16}"), "*");
    ended_[cat(call, " ", name, ": ", disturbed.status)] += 1;
    // What is read to check the recipe is a finding at the recipe's key.
    const bool is_finding = disturbed.status == 2 && disturbed.err.find(cat(recipe_, ":")) == 0;
    EXPECT_TRUE(is_finding || disturbed.status == 0 || disturbed.status == 3)
        << disturbed.status << ": " << disturbed.out << disturbed.err;
    // A folder is read for a folder around it, which is removed or copied.
    std::string told = path;
    while (call == "look" && told.size() > place_.size() &&
           disturbed.err.find(cat(told, ": Input/output")) == std::string::npos) {
      told = parent_path(told);
    }
    EXPECT_THAT(disturbed.out + disturbed.err, HasSubstr(told));
    if (disturbed.status != 0) {
      EXPECT_THAT(disturbed.err, HasSubstr("Input/output error"));
      const ProgramResult again = program_.run(run());
      EXPECT_EQ(again.status, 0) << again.err;
    }
    const RunOutcome found = outcome_of(place_);
    EXPECT_EQ(found.training, wanted_.training);
    EXPECT_EQ(found.validation, wanted_.validation);
    EXPECT_TRUE(found.weights == wanted_.weights) << "other weights";
  }

  /// Reads of a run that starts in `begin`.
  void meet_reads(const char* what, const std::string& begin,
                  const std::vector<CountedCall>& calls) {
    const FaultExtent extent = test::fault_extent();
    int64_t turn = 0, num_tried = 0, num_lost = 0;
    ended_.clear();
    for (const CountedCall& call : calls) {
      if (call.call != "read" && call.call != "pread" && call.call != "look") continue;
      // A log of validation is met always: whether it can be read is asked when it is opened.
      const bool is_sample = turn % 61 == 0 || call.path.ends_with("/validation.jsonl");
      const bool is_tried = extent.has_all_calls ? extent.has(turn) : is_sample;
      ++turn;
      if (!is_tried) continue;
      const int num_before = test::num_failures();
      meet(begin, call.rank, call.number);
      ++num_tried;
      if (test::num_failures() > num_before) ++num_lost;
      if (num_lost > 20) FAIL() << "too many to go on";
    }
    std::printf("%s, %s: %lld reads, part %lld of %lld: %lld runs tried, %lld lost\n",
                GetParam().name, what, static_cast<long long>(turn),
                static_cast<long long>(extent.part), static_cast<long long>(extent.num_parts),
                static_cast<long long>(num_tried), static_cast<long long>(num_lost));
    if (extent.has_all_calls) {
      for (const auto& [text, count] : ended_) {
        std::printf("  %s: %lld\n", text.c_str(), static_cast<long long>(count));
      }
    }
    std::fflush(stdout);
  }

  TemporaryDirectory folder_;
  test::ServedProgram program_;
  std::string recipe_;
  std::string place_ = folder_.file("run");
  RunOutcome wanted_;
  std::map<std::string, int64_t> ended_;  // runs by their call and status
};

TEST_P(FailingReadsTest, AreToldAndLoseNothing) {
  const std::vector<CountedCall> fresh = calls_of_run();
  const std::string begin = begun(fresh);
  restore(begin);
  const std::vector<CountedCall> continued = calls_of_run();
  ASSERT_FALSE(HasFailure());
  meet_reads("fresh", "", fresh);
  meet_reads("continued", begin, continued);
}

INSTANTIATE_TEST_SUITE_P(Spreads, FailingReadsTest,
                         testing::Values(NamedSpread{"One", {1, {}}}, NamedSpread{"Ddp2", {2, {}}},
                                         NamedSpread{"Fsdp2", test::sharded(2)}),
                         [](const testing::TestParamInfo<NamedSpread>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace automodel::recipes
