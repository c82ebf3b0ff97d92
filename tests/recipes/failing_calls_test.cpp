// A disk that fails, fills up or is slow, and processes that end, at every call with which a run
// changes a file: nothing is lost, and the run that is started again ends with the bits of one that
// nobody disturbed.
//
// A few calls are tried with one kind of fault each; scripts/failing_calls.sh tries all.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <regex>
#include <set>

#include "checkpoint/lifecycle.h"
#include "recipes/fault_extent.h"
#include "recipes/saving_runs.h"
#include "support/served_program.h"

namespace automodel::recipes {
namespace {

using test::CountedCall;
using test::FailingCalls;
using test::FaultExtent;
using test::NamedSpread;
using test::outcome_of;
using test::ProgramResult;
using test::RunOutcome;
using test::TemporaryDirectory;
using testing::HasSubstr;

std::vector<NamedSpread> spread_cases() {
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
      {"signal:15", {0, kPreempted, 128 + SIGTERM}, ""},  // the last when all is saved
  };
  return all;
}

/// A run that was started again, and what it came to.
struct Continued {
  ProgramResult run;
  RunOutcome outcome;
};

class FailingCallsTest : public testing::TestWithParam<NamedSpread> {
 protected:
  std::vector<std::string> run_in(const std::string& place) const {
    return test::saving_run(recipe_, place, GetParam().spread);
  }

  /// The undisturbed run, and its calls.
  void run_whole() {
    const std::string place = folder_.file("whole");
    const FailingCalls counted{.folder = place, .log = folder_.file("whole.log")};
    const ProgramResult run = program_.run(run_in(place), counted.environment());
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
    const ProgramResult run = program_.run(run_in(place), failing.environment());
    const bool loses_a_record = loses_record(fault, call);
    const auto statuses = loses_a_record ? std::vector<int>{0} : fault.statuses;
    EXPECT_THAT(statuses, testing::Contains(run.status)) << run.out << run.err;
    if (run.status != 0) {
      EXPECT_THAT(run.err, HasSubstr(fault.text));
    }
    if (run.status == 3 && fault.action.starts_with("fail")) {
      // The random end of its name is this run's own.
      const std::string path =
          std::regex_replace(call.path, std::regex("[-.][a-z]+-[0-9a-f]{16}.*"), "");
      EXPECT_THAT(run.err, HasSubstr(replace_all(path, folder_.file("whole"), place)));
      EXPECT_THAT(test::checkpoints_in(place, false), testing::IsEmpty());
    }
    ended_[cat(fault.action, " at ", call.call, ": ", run.status)] += 1;
    const std::vector<std::string> left = test::checkpoints_in(place, true);
    for (const std::string& checkpoint : left) {
      EXPECT_EQ(checkpoint::find_fault(checkpoint), std::nullopt) << checkpoint;
    }
    const bool has_published = rank == 0 && at > published_[0];
    EXPECT_TRUE(!has_published || !left.empty()) << "nothing to continue from";
    const Continued& again = continued(place);
    EXPECT_EQ(again.run.status, 0) << again.run.err;
    if (has_published) {
      EXPECT_THAT(again.run.out, HasSubstr("resumed from "));
    }
    if (loses_a_record) {
      expect_one_less(again.outcome);
    } else if (again.run.status == 0) {
      expect_wanted(again.outcome, run.status == kPreempted);
    }
    remove_tree(place);
    ++num_tried_;
  }

  /// Whether all that the fault does is that a log lacks a record.
  static bool loses_record(const Fault& fault, const CountedCall& call) {
    // training.jsonl is opened before the first step, where a failure ends the run.
    const bool is_write = call.call == "write" && call.path.ends_with("/training.jsonl");
    const bool is_validations = call.path.ends_with("/validation.jsonl") && call.call != "close";
    return fault.action.starts_with("fail") && (is_write || is_validations);
  }

  void expect_one_less(const RunOutcome& found) const {
    EXPECT_TRUE(found.weights == wanted_.weights) << "other weights";
    EXPECT_THAT(wanted_.training, testing::IsSupersetOf(found.training));
    EXPECT_THAT(wanted_.validation, testing::IsSupersetOf(found.validation));
    EXPECT_EQ(found.training.size() + found.validation.size() + 1,
              wanted_.training.size() + wanted_.validation.size());
  }

  /// The run that is started again in a folder. Where a fault left what another one has left
  /// before, it is that one's.
  const Continued& continued(const std::string& place) {
    const auto [it, is_new] = continued_.try_emplace(test::state_of(place));
    if (is_new) {
      it->second.run = program_.run(run_in(place));
      if (it->second.run.status == 0) it->second.outcome = outcome_of(place);
    }
    return it->second;
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

  /// Whether a kind of fault is tried at the calls of a rank; `turn` counts them.
  bool is_tried(const FaultExtent& extent, int rank, int64_t at, int64_t turn, size_t kind) const {
    const auto num_kinds = static_cast<int64_t>(faults().size());
    if (!extent.has(turn)) return false;
    if (!extent.has_all_kinds) {
      // The parts take neighbouring calls, and all parts all kinds.
      return static_cast<int64_t>(kind) == (rank + turn) % num_kinds;
    }
    // Only a write can be torn; elsewhere it is a kill.
    return faults()[kind].action != "torn" || call_of(rank, at).call == "write";
  }

  TemporaryDirectory folder_;
  test::ServedProgram program_;
  std::string recipe_ = test::write_saving_recipe(folder_);
  RunOutcome wanted_;
  std::vector<CountedCall> calls_;
  std::vector<int64_t> published_;
  std::map<std::string, Continued> continued_;  // by the state that it began with
  std::map<std::string, int64_t> ended_;        // runs by their fault, call and status
  int64_t num_tried_ = 0;
};

TEST_P(FailingCallsTest, LoseNothing) {
  ASSERT_NO_FATAL_FAILURE(run_whole());
  const FaultExtent tried = test::fault_extent();
  std::string counts;
  int64_t num_lost = 0;
  for (int rank = 0; rank < GetParam().spread.num_ranks; ++rank) {
    const int64_t count = num_calls(rank);
    counts += cat(counts.empty() ? "" : " + ", count);
    // A prime keeps saves and kinds out of step.
    const int64_t stride = tried.has_all_calls ? 1 : (GetParam().spread.num_ranks == 1 ? 37 : 71);
    const int64_t first = tried.has_all_calls ? 1 : 1 + rank * 3;
    for (int64_t at = first; at <= count; at += stride) {
      for (size_t kind = 0; kind < faults().size(); ++kind) {
        if (!is_tried(tried, rank, at, (at - first) / stride, kind)) continue;
        const int num_before = test::num_failures();
        meet(rank, at, faults()[kind]);
        if (test::num_failures() > num_before) ++num_lost;
        if (num_lost > 20) FAIL() << "too many to go on";
        if (num_tried_ % 100 == 0) {
          std::printf("%s: rank %d, call %lld\n", GetParam().name, rank,
                      static_cast<long long>(at));
          std::fflush(stdout);
        }
      }
    }
  }
  std::printf(
      "%s: %s calls, %zu kinds of fault, part %lld of %lld: %lld runs tried, %zu states "
      "continued, %lld lost\n",
      GetParam().name, counts.c_str(), faults().size(), static_cast<long long>(tried.part),
      static_cast<long long>(tried.num_parts), static_cast<long long>(num_tried_),
      continued_.size(), static_cast<long long>(num_lost));
  if (!tried.has_all_calls) return;
  for (const auto& [text, count] : ended_) {
    std::printf("  %s: %lld\n", text.c_str(), static_cast<long long>(count));
  }
}

INSTANTIATE_TEST_SUITE_P(Spreads, FailingCallsTest, testing::ValuesIn(spread_cases()),
                         [](const testing::TestParamInfo<NamedSpread>& info) {
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

/// The events of a run that tell of lost records.
std::vector<std::string> lost_records_of(const std::string& place) {
  std::vector<std::string> lost;
  for (const Json& event : test::read_records(path_join(place, "events.jsonl"))) {
    if (event.at("event").as_string() != "lost_records") continue;
    lost.push_back(cat(event.at("file").as_string(), " ", event.at("num_lost").as_int()));
  }
  return lost;
}

TEST_F(FailingMomentTest, ARecordThatCannotBeWrittenIsLostAndChangesNothingElse) {
  const test::Spread spread{1, {}};
  const std::vector<CountedCall> calls = calls_of(spread);
  const test::RunOutcome wanted = outcome_of(folder_.file("whole"));
  for (const char* log : {"training.jsonl", "validation.jsonl"}) {
    for (const int error : {EIO, ENOSPC}) {
      const std::string place = folder_.file(cat(log, error));
      const int64_t at = test::numbers_of(calls, 0, "write", cat("/", log)).front();
      const FailingCalls failing{
          .folder = place, .rank = 0, .at = at, .action = cat("fail:", error)};
      const ProgramResult run = test::run_program(run_in(place, spread), failing.environment());
      EXPECT_EQ(run.status, 0) << run.err;
      EXPECT_THAT(run.err, HasSubstr(cat("records of the run are lost: cannot write ", place, "/",
                                         log, ": ", std::strerror(error))));
      test::RunOutcome left = wanted;
      auto& lines = log == std::string("training.jsonl") ? left.training : left.validation;
      lines.erase(lines.begin());
      const test::RunOutcome found = outcome_of(place);
      EXPECT_EQ(found.training, left.training);
      EXPECT_EQ(found.validation, left.validation);
      EXPECT_TRUE(found.weights == wanted.weights) << "other weights";
      EXPECT_EQ(lost_records_of(place), std::vector<std::string>{cat(log, " 1")});
    }
  }
}

TEST_F(FailingMomentTest, ADiskThatFillsUpUnderTheLogsStopsNoTraining) {
  const test::Spread spread{1, {"--checkpoint.enabled=false"}};
  const std::vector<CountedCall> calls = calls_of(spread);
  const auto losses = [](const std::string& out) {
    const std::regex line("step [0-9]+ \\| epoch [0-9]+ \\| loss [0-9.]+ \\| [a-z_]+ [0-9.]+");
    return std::vector<std::string>(std::sregex_token_iterator(out.begin(), out.end(), line), {});
  };
  const std::string place = folder_.file("run");
  const ProgramResult undisturbed = test::run_program(run_in(folder_.file("other"), spread));
  const int64_t at = test::numbers_of(calls, 0, "write", "/training.jsonl")[1];
  const FailingCalls failing{.folder = place, .rank = 0, .at = at, .action = "full"};
  const ProgramResult run = test::run_program(run_in(place, spread), failing.environment());
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(losses(run.out).size(), 6U);  // four steps, two validations
  EXPECT_EQ(losses(run.out), losses(undisturbed.out));
  EXPECT_THAT(test::read_records(path_join(place, "training.jsonl")), testing::SizeIs(1));
  for (const char* log : {"training.jsonl", "validation.jsonl"}) {
    const std::string warning = cat("records of the run are lost: cannot write ", place, "/", log,
                                    ": No space left on device");
    EXPECT_EQ(split(replace_all(run.err, warning, "@"), '@').size(), 2U) << run.err;
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
  const double timeout_seconds = 1;
  const test::Spread spread =
      test::sharded(2, {cat("--dist_env.timeout_minutes=", timeout_seconds / 60)});
  const auto arguments = [&](const std::string& place) {
    auto all = run_in(place, spread);
    all.emplace_back("--step_scheduler.max_steps=2");
    all.emplace_back("--lr_scheduler.lr_warmup_steps=0");
    return all;
  };
  const std::string place = folder_.file("run");
  /// A run in `place`, and its calls; the at-th of a rank takes three times the timeout.
  const auto run = [&](int rank, int64_t at) {
    FailingCalls slow{.folder = place, .log = folder_.file("calls.log"), .has_reads = true};
    remove_tree(slow.log);
    if (at > 0) {
      slow.rank = rank;
      slow.at = at;
      slow.action = "slow:3000";
    }
    const ProgramResult result = test::run_program(arguments(place), slow.environment());
    EXPECT_EQ(result.status, 0) << result.err;
    if (at > 0) {
      EXPECT_GT(result.seconds, 3 * timeout_seconds);
    }
    std::printf("%.1f s", result.seconds);
    return test::read_calls(slow.log);
  };
  std::printf("fresh: ");
  const std::vector<CountedCall> fresh = run(0, 0);
  std::printf("\ncontinued: ");
  const std::vector<CountedCall> continued = run(0, 0);
  for (const int rank : {0, 1}) {
    std::printf("\ncontinued, rank %d reads slowly: ", rank);
    run(rank, test::numbers_of(continued, rank, "pread", "/shard-").front());
  }
  const struct {
    const char* what;
    int rank;
    const char* file;
  } writes[] = {{"rank 1 saves slowly", 1, "/optim/shard-"},
                {"rank 0 exports slowly", 0, "/consolidated/model-"}};
  for (const auto& it : writes) {
    remove_tree(place);
    std::printf("\n%s: ", it.what);
    run(it.rank, test::numbers_of(fresh, it.rank, "write", it.file).back());
  }
  std::printf("\n");
}

TEST_F(FailingMomentTest, ASignalInTheLastStepLeavesOutNeitherItsValidationNorTheExport) {
  const test::Spread spread{1, {"--checkpoint.save_consolidated=final"}};
  const std::vector<CountedCall> calls = calls_of(spread);
  const std::string place = folder_.file("run");
  const int64_t last_record = test::numbers_of(calls, 0, "write", "/training.jsonl").back();
  const FailingCalls failing{.folder = place, .rank = 0, .at = last_record, .action = "signal:15"};
  const ProgramResult run = test::run_program(run_in(place, spread), failing.environment());
  EXPECT_EQ(run.status, 0) << run.err;
  const test::RunOutcome wanted = outcome_of(folder_.file("whole")), found = outcome_of(place);
  EXPECT_EQ(found.validation, wanted.validation);
  EXPECT_TRUE(found.weights == wanted.weights) << "other weights";
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
