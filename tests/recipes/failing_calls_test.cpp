// A disk that fails, fills up or is slow, and processes that end, at every call with which a run
// changes a file: nothing is lost, and the run that is started again ends with the bits of one that
// nobody disturbed.
//
// Every n-th call is tried with one kind of fault; AUTOMODEL_FAILING_CALLS=all tries every call
// with every kind (scripts/failing_calls.sh).

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "checkpoint/lifecycle.h"
#include "recipes/saving_runs.h"

namespace automodel::recipes {
namespace {

using test::CountedCall;
using test::FailingCalls;
using test::outcome_of;
using test::ProgramResult;
using test::RunOutcome;
using test::TemporaryDirectory;
using testing::HasSubstr;

struct SpreadCase {
  const char* name;
  test::Spread spread;
};

std::vector<SpreadCase> spread_cases() {
  return {{"One", {1, {}}},
          {"Ddp2", {2, {}}},
          {"Fsdp2", test::sharded(2)},
          {"Hsdp4", test::sharded(4, {"--distributed.dp_replicate_size=2",
                                      "--step_scheduler.local_batch_size=1"})}};
}

constexpr int kPreempted = 75;

/// What happens at a call.
struct Fault {
  std::string action;
  std::vector<int> statuses;  ///< of the run
  std::string text;           ///< in its error, when its status is not 0
};

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = {
      {"kill", {128 + SIGKILL}, ""},
      {"fail:5", {0, 3}, "Input/output error"},
      {"full", {0, 3}, "No space left on device"},
      {"torn", {128 + SIGKILL}, ""},
      {"signal:15", {0, kPreempted}, ""},
  };
  return all;
}

bool tries_all() {
  const char* text = std::getenv("AUTOMODEL_FAILING_CALLS");
  return text != nullptr && std::string_view(text) == "all";
}

class FailingCallsTest : public testing::TestWithParam<SpreadCase> {
 protected:
  std::vector<std::string> run_in(const std::string& place) const {
    return test::saving_run(recipe_, place, GetParam().spread);
  }

  /// The undisturbed run, and its calls.
  void run_whole() {
    const std::string place = folder_.file("whole");
    const FailingCalls counted{.folder = place, .log = folder_.file("whole.log")};
    const ProgramResult run = test::run_program(run_in(place), counted.environment());
    ASSERT_EQ(run.status, 0) << run.err;
    wanted_ = outcome_of(place);
    ASSERT_EQ(wanted_.training.size(), 4U);
    ASSERT_EQ(wanted_.validation.size(), 2U);
    calls_ = test::read_calls(counted.log);
    for (const int64_t number : test::numbers_of(calls_, 0, "unlink", ".incomplete")) {
      // Its removal publishes a checkpoint; a save also removes those that it replaces.
      published_.push_back(number);
    }
    ASSERT_EQ(published_.size(), 2U);
  }

  int64_t num_calls(int rank) const {
    return std::count_if(calls_.begin(), calls_.end(),
                         [rank](const CountedCall& call) { return call.rank == rank; });
  }

  /// One run that meets a fault, what it leaves, and the run that is started again.
  void meet(int rank, int64_t at, const Fault& fault) {
    const CountedCall& call = call_of(rank, at);
    SCOPED_TRACE(
        cat(fault.action, " at call ", at, " of rank ", rank, ": ", call.call, " ", call.path));
    const std::string place = folder_.file("run");
    const FailingCalls failing{.folder = place, .rank = rank, .at = at, .action = fault.action};
    const ProgramResult run = test::run_program(run_in(place), failing.environment());
    EXPECT_THAT(fault.statuses, testing::Contains(run.status)) << run.out << run.err;
    if (run.status != 0) {
      EXPECT_THAT(run.err, HasSubstr(fault.text));
    }
    const std::vector<std::string> left = test::checkpoints_in(place, true);
    for (const std::string& checkpoint : left) {
      EXPECT_EQ(checkpoint::find_fault(checkpoint), std::nullopt) << checkpoint;
    }
    const bool has_published = rank == 0 && at > published_[0];
    EXPECT_TRUE(!has_published || !left.empty()) << "nothing to continue from";
    const ProgramResult again = test::run_program(run_in(place));
    EXPECT_EQ(again.status, 0) << again.err;
    if (has_published) {
      EXPECT_THAT(again.out, HasSubstr("resumed from "));
    }
    if (again.status == 0) expect_wanted(outcome_of(place), run.status == kPreempted);
    remove_tree(place);
    ++num_tried_;
  }

  /// A run that stops for a signal leaves out the validation of its last step.
  void expect_wanted(const RunOutcome& found, bool is_preempted) const {
    EXPECT_EQ(found.training, wanted_.training);
    EXPECT_TRUE(found.weights == wanted_.weights) << "other weights";
    if (is_preempted) {
      EXPECT_THAT(wanted_.validation, testing::IsSupersetOf(found.validation));
    } else {
      EXPECT_EQ(found.validation, wanted_.validation);
    }
  }

  const CountedCall& call_of(int rank, int64_t number) const {
    return *std::find_if(calls_.begin(), calls_.end(), [&](const CountedCall& call) {
      return call.rank == rank && call.number == number;
    });
  }

  TemporaryDirectory folder_;
  std::string recipe_ = test::write_saving_recipe(folder_);
  RunOutcome wanted_;
  std::vector<CountedCall> calls_;
  std::vector<int64_t> published_;
  int64_t num_tried_ = 0;
};

TEST_P(FailingCallsTest, LoseNothing) {
  ASSERT_NO_FATAL_FAILURE(run_whole());
  std::string counts;
  int64_t num_failed = 0;
  for (int rank = 0; rank < GetParam().spread.num_ranks; ++rank) {
    const int64_t count = num_calls(rank);
    counts += cat(counts.empty() ? "" : " + ", count);
    // A few of them, another kind of fault each time; a prime keeps saves and kinds out of step.
    const int64_t stride = tries_all() ? 1 : (GetParam().spread.num_ranks == 1 ? 37 : 71);
    size_t next = static_cast<size_t>(rank);
    for (int64_t at = 1 + rank * 3; at <= count; at += stride) {
      for (size_t i = 0; i < faults().size(); ++i) {
        const bool is_chosen = tries_all() || i == next % faults().size();
        const bool is_torn = faults()[i].action == "torn";
        // Only a write can be torn; elsewhere it is a kill.
        if (!is_chosen || (tries_all() && is_torn && call_of(rank, at).call != "write")) continue;
        meet(rank, at, faults()[i]);
        if (HasFailure()) ++num_failed;
        if (num_failed > 5) FAIL() << "too many to go on";
      }
      ++next;
    }
  }
  std::printf("%s: %s calls, %d kinds of fault, %d ranks: %lld runs tried, %lld wrong\n",
              GetParam().name, counts.c_str(), static_cast<int>(faults().size()),
              GetParam().spread.num_ranks, static_cast<long long>(num_tried_),
              static_cast<long long>(num_failed));
}

INSTANTIATE_TEST_SUITE_P(Spreads, FailingCallsTest, testing::ValuesIn(spread_cases()),
                         [](const testing::TestParamInfo<SpreadCase>& info) {
                           return info.param.name;
                         });

/// Single moments that the README speaks of, whatever the sample above holds.
class FailingMomentTest : public testing::Test {
 protected:
  std::vector<std::string> run_in(const std::string& place, const test::Spread& spread) const {
    return test::saving_run(recipe_, place, spread);
  }

  std::vector<CountedCall> calls_of(const test::Spread& spread, bool has_reads = false) {
    const std::string place = folder_.file("whole");
    const FailingCalls counted{
        .folder = place, .log = folder_.file("whole.log"), .has_reads = has_reads};
    const ProgramResult run = test::run_program(run_in(place, spread), counted.environment());
    EXPECT_EQ(run.status, 0) << run.err;
    return test::read_calls(counted.log);
  }

  TemporaryDirectory folder_;
  std::string recipe_ = test::write_saving_recipe(folder_);
};

TEST_F(FailingMomentTest, AFullDiskOnAnyRankIsItsErrorAndLeavesNoHalfCheckpoint) {
  const test::Spread spread = test::sharded(2);
  const std::vector<CountedCall> calls = calls_of(spread);
  for (const int rank : {0, 1}) {
    const std::string place = folder_.file(cat("run", rank));
    const int64_t at = test::numbers_of(calls, rank, "write", "/optim/shard-").back();
    const FailingCalls failing{.folder = place, .rank = rank, .at = at, .action = "full"};
    const ProgramResult run = test::run_program(run_in(place, spread), failing.environment());
    EXPECT_EQ(run.status, 3) << run.err;
    EXPECT_THAT(run.err, HasSubstr(cat("rank ", rank, ": cannot write ", place)));
    EXPECT_THAT(run.err, HasSubstr("No space left on device"));
    EXPECT_THAT(test::checkpoints_in(place, false), testing::IsEmpty());
    EXPECT_THAT(test::checkpoints_in(place, true), testing::SizeIs(1));
  }
}

TEST_F(FailingMomentTest, AnExportIsNotReadAgainForTheManifest) {
  for (const CountedCall& call : calls_of({1, {}}, true)) {
    const bool is_read = call.call == "read" || call.call == "pread";
    const bool is_export = call.path.find("consolidated/model-") != std::string::npos;
    EXPECT_FALSE(is_read && is_export) << call.path;
  }
}

TEST_F(FailingMomentTest, FilesAreSyncedBeforeTheyGetTheirNamesAndAllBeforeTheyArePublished) {
  std::set<std::string> synced;
  int num_renamed = 0;
  for (const CountedCall& call : calls_of({1, {}})) {
    if (call.call == "fsync") {
      synced.insert(call.path.substr(0, call.path.find(".tmp-")));
    } else if (call.call == "rename" && call.path.find("/epoch_0_step_1/") != std::string::npos) {
      ++num_renamed;
      EXPECT_TRUE(synced.contains(call.path)) << call.path;
    } else if (call.call == "rename" && call.path.ends_with("LATEST")) {
      for (const char* below : {"", "/model", "/optim", "/rng", "/model/consolidated"}) {
        if (num_renamed == 0) continue;
        EXPECT_TRUE(synced.contains(folder_.file(cat("whole/epoch_0_step_1", below)))) << below;
      }
    }
  }
  EXPECT_GT(num_renamed, 10);
}

TEST_F(FailingMomentTest, RanksWaitForASlowDiskHoweverShortTheTimeout) {
  const test::Spread spread = test::sharded(2, {cat("--dist_env.timeout_minutes=", 2.0 / 60)});
  const std::string place = folder_.file("run");
  const auto arguments = [&](int steps) {
    auto all = run_in(place, spread);
    all.push_back(cat("--step_scheduler.max_steps=", steps));
    all.emplace_back("--lr_scheduler.lr_warmup_steps=0");
    return all;
  };
  // Rank 0 writes all that is not split, so rank 1 waits for it for seconds.
  const FailingCalls slow{.folder = place, .rank = 0, .action = "slow:120"};
  const ProgramResult saved = test::run_program(arguments(2), slow.environment());
  EXPECT_EQ(saved.status, 0) << saved.err;
  EXPECT_GT(saved.seconds, 6.0);
  for (const int rank : {0, 1}) {
    FailingCalls reads = slow;
    reads.rank = rank;
    reads.action = "slow:400";
    reads.has_reads = true;
    const ProgramResult resumed = test::run_program(arguments(2), reads.environment());
    EXPECT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_GT(resumed.seconds, 5.0);
    EXPECT_THAT(resumed.out, HasSubstr("resumed from "));
  }
}

TEST_F(FailingMomentTest, EveryRankReadsItsShareOfACheckpoint) {
  const test::Spread spread = test::sharded(2);
  calls_of(spread);
  const std::string place = folder_.file("whole");
  const FailingCalls counted{
      .folder = place, .log = folder_.file("resumed.log"), .has_reads = true};
  ASSERT_EQ(test::run_program(run_in(place, spread), counted.environment()).status, 0);
  const auto calls = test::read_calls(counted.log);
  // The export is read for nothing but to verify it: by one rank.
  size_t num_readers = 0;
  for (const int rank : {0, 1}) {
    const auto reads = test::numbers_of(calls, rank, "read", "consolidated/model-");
    num_readers += reads.empty() ? 0 : 1;
    EXPECT_FALSE(test::numbers_of(calls, rank, "pread", "/shard-").empty());
  }
  EXPECT_EQ(num_readers, 1U);
}

}  // namespace
}  // namespace automodel::recipes
