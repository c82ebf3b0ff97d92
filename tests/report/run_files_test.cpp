#include "report/records/run_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/timestamp.h"
#include "report/run_folder.h"
#include "support/errors.h"

namespace automodel::report {
namespace {

using test::step_line;
using test::TemporaryDirectory;
using test::write_run;

TEST(RunFilesTest, RecordsBecomeColumns) {
  const TemporaryDirectory parent;
  const std::string folder = write_run(
      parent, {.training = step_line(0, "7.5") + step_line(1, "6.25", "2026-08-01T00:00:02.500Z")});
  const RecordedRun run = read_run(folder);
  EXPECT_EQ(run.name, "run");
  EXPECT_EQ(run.num_unread_lines, 0);
  EXPECT_EQ(run.steps.step, (std::vector<double>{0, 1}));
  EXPECT_EQ(run.steps.of(Metric::kLoss), (std::vector<double>{7.5, 6.25}));
  EXPECT_EQ(run.steps.of(Metric::kTokensPerSecond), (std::vector<double>{5000.5, 5000.5}));
  EXPECT_EQ(run.steps.tokens, (std::vector<double>{100, 200}));
  EXPECT_EQ(run.steps.seconds[1] - run.steps.seconds[0], 2.5);
}

TEST(RunFilesTest, HalfLinesNaNAndInfinityAreTolerated) {
  const TemporaryDirectory parent;
  const std::string folder = write_run(
      parent,
      {.training = step_line(0, "NaN") + "not json\n\n[1, 2]\n" + step_line(1, "Infinity") +
                   "{\"loss\": 3}\n" + step_line(2, "2.5").substr(0, 40),
       .events = "{\"event\": \"start\", \"timestamp\": \"2026-08-01T00:00:00.000Z\"}\n{\"ev",
       .description = "{\"max_st"});
  const RecordedRun run = read_run(folder);
  ASSERT_EQ(run.steps.size(), 2U);
  EXPECT_TRUE(std::isnan(run.steps.of(Metric::kLoss)[0]));
  EXPECT_TRUE(std::isinf(run.steps.of(Metric::kLoss)[1]));
  EXPECT_EQ(run.steps.of(Metric::kLr)[1], 0.001);
  EXPECT_EQ(run.num_unread_lines, 5);
  EXPECT_EQ(run.events.events().size(), 1U);
  EXPECT_TRUE(run.description.is_null());
}

TEST(RunFilesTest, ALastLineWithoutAnEndIsARecordIfItIsWhole) {
  const TemporaryDirectory parent;
  std::string lines = step_line(0, "3") + step_line(1, "2");
  lines.pop_back();
  EXPECT_EQ(read_run(write_run(parent, {.training = lines})).steps.size(), 2U);
  lines.pop_back();
  const RecordedRun cut = read_run(write_run(parent, {.training = lines}));
  EXPECT_EQ(cut.steps.size(), 1U);
  EXPECT_EQ(cut.num_unread_lines, 1);
}

TEST(RunFilesTest, ManyRecordsThatSeveralThreadsReadKeepTheirOrder) {
  std::string lines;
  constexpr int64_t kSteps = 40000;  // some ten megabytes
  for (int64_t step = 0; step < kSteps; ++step) lines += step_line(step, cat(step, ".5"));
  StepTable steps;
  EXPECT_EQ(add_steps(lines, steps), 0);
  ASSERT_EQ(steps.size(), static_cast<size_t>(kSteps));
  for (size_t i = 0; i < steps.size(); ++i) {
    ASSERT_EQ(steps.step[i], static_cast<double>(i));
    ASSERT_EQ(steps.of(Metric::kLoss)[i], static_cast<double>(i) + 0.5);
    ASSERT_EQ(steps.tokens[i], 100.0 * static_cast<double>(i + 1));
  }
}

TEST(RunFilesTest, TheStateIsThatOfTheLastStart) {
  const auto state_after = [](const std::vector<std::string>& names) {
    RecordedRun run;
    for (const std::string& name : names) run.events.add(RunEvent{name, 0, {}, Json::object()});
    return run.state();
  };
  EXPECT_EQ(state_after({}), RunState::kUnknown);
  EXPECT_EQ(state_after({"start", "end"}), RunState::kDone);
  EXPECT_EQ(state_after({"start", "failure"}), RunState::kFailed);
  EXPECT_EQ(state_after({"start", "failure", "start", "save"}), RunState::kUnknown);
  EXPECT_EQ(state_after({"start", "preempted"}), RunState::kPreempted);
}

TEST(RunFilesTest, TimesAreReadAsUtc) {
  EXPECT_EQ(seconds_of_timestamp("1970-01-02T00:00:01.250Z"), 86401.25);
  EXPECT_EQ(seconds_of_timestamp("2026-08-01T12:34:56.789Z"), 1785587696.789);
  for (const char* bad : {"", "2026-08-01", "2026-13-01T12:34:56.789Z", "2026-08-01T12:34:56,7890",
                          "xxxx-08-01T12:34:56.789Z"}) {
    EXPECT_TRUE(std::isnan(seconds_of_timestamp(bad))) << bad;
  }
}

TEST(RunFilesTest, ValidationSetsAreNamedByTheirFiles) {
  const TemporaryDirectory parent;
  const std::string folder = write_run(
      parent, {.training = step_line(0, "1"), .validation = "{\"step\": 3, \"val_loss\": 2.5}\n"});
  write_file_atomic(path_join(folder, "validation_held_out.jsonl"),
                    "{\"step\": 4, \"val_loss\": 1.5, \"lr\": 1, \"accuracy\": 0.25}\n");
  const Validations validations = read_run(folder).validations;
  ASSERT_EQ(validations.losses.size(), 2U);
  EXPECT_EQ(validations.losses[0].set, "default");
  EXPECT_EQ(validations.losses[1].set, "held_out");
  EXPECT_EQ(validations.losses[1].value, 1.5);
  // What training records have too is not drawn twice.
  ASSERT_EQ(validations.others.size(), 1U);
  ASSERT_EQ(validations.others.at("accuracy").size(), 1U);
  EXPECT_EQ(validations.others.at("accuracy")[0].set, "held_out");
  EXPECT_EQ(validations.others.at("accuracy")[0].step, 4);
  EXPECT_EQ(validations.others.at("accuracy")[0].value, 0.25);
}

TEST(RunFilesTest, AFolderThatIsNoRunsIsAnError) {
  const TemporaryDirectory parent;
  write_run(parent, {.name = "a", .training = step_line(0, "1")});
  const auto error = [](const std::string& folder) {
    return test::error_of<UserError>([&] { read_run(folder); });
  };
  EXPECT_EQ(error(parent.path()),
            cat(parent.path(),
                " is not the folder of a run: it has neither training.jsonl nor run.json; a run's "
                "folder is its checkpoint.checkpoint_dir; there are runs in it: a"));
  EXPECT_EQ(error(parent.file("none")), cat("no such folder: ", parent.file("none")));
  const std::string file = parent.file("a/training.jsonl");
  EXPECT_EQ(error(file), cat(file, " is not a folder"));
}

TEST(RunFilesTest, RunsOfOneNameAreToldApartByTheirFolders) {
  const TemporaryDirectory parent;
  std::vector<std::string> folders;
  for (const char* name : {"x/run", "y/run/", "z"}) {
    folders.push_back(write_run(parent, {.name = name, .training = step_line(0, "1")}));
  }
  const std::vector<RecordedRun> runs = read_runs(folders);
  EXPECT_EQ(runs[0].name, folders[0]);
  EXPECT_EQ(runs[1].name, folders[1]);
  EXPECT_EQ(runs[2].name, "z");
}

}  // namespace
}  // namespace automodel::report
