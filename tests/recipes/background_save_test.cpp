// Saves that go on while training does (checkpoint.is_async): they hold what a save of that moment
// holds, training does not wait for a slow disk, and a disk that fails or a process that ends loses
// nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>

#include "recipes/fault_extent.h"
#include "recipes/saving_runs.h"
#include "support/served_program.h"

namespace automodel::recipes {
namespace {

using test::FailingCalls;
using test::NamedSpread;
using test::ProgramResult;
using test::TemporaryDirectory;
using testing::HasSubstr;

/// An epoch of five steps that saves after every `every` of them and after the last one.
std::vector<std::string> run_of(const std::string& recipe, const std::string& place,
                                const test::Spread& spread, int every, bool is_async) {
  return test::on(
      spread, {test::automodel_binary(), "run", recipe, cat("--checkpoint.checkpoint_dir=", place),
               "--step_scheduler.max_steps=5", cat("--step_scheduler.ckpt_every_steps=", every),
               "--checkpoint.max_recent_checkpoints=9",
               cat("--checkpoint.is_async=", is_async ? "true" : "false")});
}

/// The checksums of a checkpoint's files by their paths in it, but for those that name the run's
/// options.
std::map<std::string, std::string> files_of(const std::string& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(checkpoint)) {
    const std::string path = entry.path().string().substr(checkpoint.size());
    if (!entry.is_regular_file() || path == "/config.yaml" || path == "/manifest.json") continue;
    files[path] = format_checksum(checksum_of_file(entry.path().string()));
  }
  return files;
}

class BackgroundSaveTest : public testing::TestWithParam<NamedSpread> {
 protected:
  ProgramResult run(const std::string& place, int every, bool is_async,
                    const std::vector<std::string>& environment = {}) {
    return program_.run(run_of(recipe_, place, GetParam().spread, every, is_async), environment);
  }

  TemporaryDirectory folder_;
  test::ServedProgram program_;
  std::string recipe_ = test::write_saving_recipe(folder_);
};

TEST_P(BackgroundSaveTest, HoldsWhatASaveOfThatMomentHolds) {
  const std::string whole = folder_.file("whole"), background = folder_.file("background");
  ASSERT_EQ(run(whole, 2, false).status, 0);
  // Slow enough for the next steps to change the parameters before they are written.
  const FailingCalls slow{.folder = path_join(background, "epoch_0_step_1"), .action = "slow:10"};
  const ProgramResult saved = run(background, 2, true, slow.environment());
  ASSERT_EQ(saved.status, 0) << saved.err;
  EXPECT_THAT(saved.out, HasSubstr("epoch_0_step_1 in "));
  EXPECT_THAT(saved.out, HasSubstr("in the background; training waited "));
  for (const char* name : {"epoch_0_step_1", "epoch_0_step_3", "epoch_0_step_4"}) {
    EXPECT_EQ(files_of(path_join(background, name)), files_of(path_join(whole, name))) << name;
  }
  EXPECT_EQ(test::outcome_of(background).training, test::outcome_of(whole).training);
}

TEST_P(BackgroundSaveTest, FaultsLoseNothing) {
  const std::string whole = folder_.file("whole");
  ASSERT_EQ(run(whole, 2, false).status, 0);
  const test::RunOutcome wanted = test::outcome_of(whole);
  struct Fault {
    const char* action;
    int status;
    const char* text;
  };
  constexpr Fault kFaults[] = {{"fail:5", 3, "Input/output error"},
                               {"full", 3, "No space left on device"},
                               {"kill", 128 + SIGKILL, ""}};
  const bool is_sharded = GetParam().spread.options.size() > 0;
  for (int rank = 0; rank < (is_sharded ? GetParam().spread.num_ranks : 1); ++rank) {
    for (const auto& [action, status, text] : kFaults) {
      SCOPED_TRACE(cat(action, " on rank ", rank));
      const std::string place = folder_.file(cat("run_", action[0], action[1], rank));
      // The first write of parameters.
      const FailingCalls failing{.folder = path_join(place, "epoch_0_step_3/model"),
                                 .rank = rank,
                                 .at = 2,
                                 .action = action};
      const ProgramResult failed = run(place, 2, true, failing.environment());
      EXPECT_EQ(failed.status, status) << failed.out << failed.err;
      EXPECT_THAT(failed.err, HasSubstr(text));
      if (status == 3) {
        EXPECT_THAT(failed.err, HasSubstr(path_join(place, "epoch_0_step_3")));
        EXPECT_THAT(test::checkpoints_in(place, false), testing::IsEmpty());
      }
      EXPECT_THAT(test::checkpoints_in(place, true), testing::SizeIs(1));
      const ProgramResult again = run(place, 2, true);
      EXPECT_EQ(again.status, 0) << again.err;
      EXPECT_THAT(again.out, HasSubstr("resumed from "));
      const test::RunOutcome found = test::outcome_of(place);
      EXPECT_EQ(found.training, wanted.training);
      EXPECT_TRUE(found.weights == wanted.weights) << "other weights";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Spreads, BackgroundSaveTest,
                         testing::Values(NamedSpread{"One", {1, {}}}, NamedSpread{"Ddp2", {2, {}}},
                                         NamedSpread{"Fsdp2", test::sharded(2)}),
                         [](const testing::TestParamInfo<NamedSpread>& info) {
                           return info.param.name;
                         });

TEST(BackgroundSavesTest, TrainingGoesOnWhileADiskIsSlow) {
  const TemporaryDirectory folder;
  const std::string recipe = test::write_saving_recipe(folder), place = folder.file("run");
  const FailingCalls slow{.folder = path_join(place, "epoch_0_step_2"), .action = "slow:60"};
  const ProgramResult run =
      test::run_program(run_of(recipe, place, test::sharded(2), 3, true), slow.environment());
  ASSERT_EQ(run.status, 0) << run.err;
  const std::vector<Json> events = test::read_records(path_join(place, "events.jsonl"));
  const auto save = std::find_if(events.begin(), events.end(), [](const Json& event) {
    return event.at("event").as_string() == "save";
  });
  ASSERT_NE(save, events.end());
  EXPECT_EQ(save->at("path").as_string(), path_join(place, "epoch_0_step_2"));
  EXPECT_EQ(save->at("step").as_int(), 2);
  const std::vector<Json> steps = test::read_records(path_join(place, "training.jsonl"));
  ASSERT_EQ(steps.size(), 5U);
  // Both steps that followed were over before the files were written.
  EXPECT_LT(steps.back().at("timestamp").as_string(), save->at("timestamp").as_string());
}

TEST(BackgroundSavesTest, AGoodSaveOutlivesAStepThatIsNotFinite) {
  for (const int num_ranks : {1, 2}) {
    const TemporaryDirectory folder;
    const std::string recipe = test::write_saving_recipe(folder), place = folder.file("run");
    const FailingCalls slow{.folder = path_join(place, "epoch_0_step_0"), .action = "slow:30"};
    std::vector<std::string> arguments = run_of(recipe, place, {num_ranks, {}}, 1, true);
    arguments.emplace_back("--optimizer.lr=1e38");
    const ProgramResult run = test::run_program(arguments, slow.environment());
    EXPECT_EQ(run.status, 5) << run.out << run.err;
    EXPECT_THAT(test::checkpoints_in(place, true),
                testing::ElementsAre(path_join(place, "epoch_0_step_0")));
    EXPECT_THAT(run.out, HasSubstr("epoch_0_step_0 in "));
  }
}

TEST(BackgroundSavesTest, APlanCountsTheCopy) {
  const TemporaryDirectory folder;
  const std::string recipe = test::write_saving_recipe(folder);
  const auto part = [&](const char* is_async) -> int64_t {
    const ProgramResult plan =
        test::run_program({test::automodel_binary(), "plan", recipe, "--json",
                           cat("--checkpoint.is_async=", is_async)});
    EXPECT_EQ(plan.status, 0) << plan.err;
    return Json::parse(plan.out, "plan").at("moments").at("saving").as_int();
  };
  const std::string plan =
      test::run_program({test::automodel_binary(), "plan", recipe, "--checkpoint.is_async=true"})
          .out;
  EXPECT_THAT(plan, HasSubstr("copy for background saves"));
  EXPECT_GT(part("true"), part("false"));
}

}  // namespace
}  // namespace automodel::recipes
