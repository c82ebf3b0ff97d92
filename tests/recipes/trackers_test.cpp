// A run's numbers in TensorBoard's event files and on an MLflow server, of processes as people
// start them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <map>
#include <set>

#include "recipes/runs.h"
#include "support/failing_calls.h"
#include "support/mlflow_server.h"
#include "trackers/event_reader.h"

namespace automodel::recipes {
namespace {

using test::HttpReply;
using test::MlflowServedRun;
using test::ProgramResult;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using Texts = std::vector<std::string>;

class TrackersTest : public testing::Test {
 protected:
  /// A run of six steps that saves after every third.
  Texts run_with(const Texts& more) const {
    Texts arguments =
        test::smoke_run(place_, {"--step_scheduler.max_steps=6", "--step_scheduler.num_epochs=3",
                                 "--step_scheduler.ckpt_every_steps=3"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  Texts with_mlflow(const Texts& more = {}) const {
    Texts arguments = run_with({cat("--mlflow.tracking_uri=", server_.address())});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::vector<Json> trained() const {
    return test::read_records(path_join(place_, "training.jsonl"));
  }
  Texts tallies() const { return test::tracker_tallies(place_); }
  /// The steps at which a metric was told.
  static std::vector<int64_t> steps_of(const MlflowServedRun& run, const std::string& key) {
    std::vector<int64_t> steps;
    for (const auto& point : run.metrics) {
      if (point.key == key) steps.push_back(point.step);
    }
    return steps;
  }
  /// How many records the event files of a folder hold besides what each begins with.
  static std::vector<size_t> records_in(const std::string& folder) {
    std::vector<size_t> counts;
    for (const std::string& name : list_directory(folder)) {
      counts.push_back(test::read_event_records(path_join(folder, name)).size() - 3);
    }
    return counts;
  }

  test::TemporaryDirectory folder_;
  std::string place_ = folder_.file("run");
  test::MlflowServer server_;
};

TEST_F(TrackersTest, EventFilesHoldTheRecordsOfTheLogs) {
  const ProgramResult run = test::run_program(run_with({"--tensorboard.enable=true"}));
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string logs = path_join(place_, "tensorboard");
  EXPECT_THAT(run.out, HasSubstr("TensorBoard: event files in " + logs));
  EXPECT_THAT(records_in(logs), ElementsAre(trained().size()));
  EXPECT_THAT(tallies(), ElementsAre(cat("TensorBoard sent ", trained().size(), " lost 0")));
  // A run that goes on writes a file of its own beside it.
  const ProgramResult longer =
      test::run_program(run_with({"--tensorboard.enable=true", "--step_scheduler.max_steps=8"}));
  ASSERT_EQ(longer.status, 0) << longer.err;
  EXPECT_THAT(records_in(logs), ElementsAre(6, 2));
  remove_tree(place_);
  ASSERT_EQ(test::run_program(run_with({"--tensorboard.enable=false"})).status, 0);
  EXPECT_FALSE(path_exists(logs));
}

/// A histogram as TensorBoard's HistogramProto has it.
struct Shown {
  int64_t step = 0;
  double min = 0, max = 0, count = 0, sum_of_squares = 0;
  std::map<double, double> buckets;  // by their limits
};
using Histograms = std::map<std::string, std::vector<Shown>>;  // by tags

Shown shown_of(int64_t step, std::string_view message) {
  const auto fields = test::read_fields(message);
  const auto real = [&](int number) {
    const auto field = fields.find(number);
    return field == fields.end() ? 0.0 : field->second.real();
  };
  Shown shown{step, real(1), real(2), real(3), real(5), {}};
  const std::vector<double> limits = fields.find(6)->second.packed_reals();
  const std::vector<double> counts = fields.find(7)->second.packed_reals();
  for (size_t i = 0; i < limits.size(); ++i) shown.buckets[limits[i]] = counts.at(i);
  return shown;
}

/// The histograms of a folder's event files.
Histograms histograms_in(const std::string& folder) {
  Histograms found;
  for (const std::string& name : list_directory(folder)) {
    for (const std::string& record : test::read_event_records(path_join(folder, name))) {
      const auto event = test::read_fields(record);
      const auto summary = event.find(5);
      if (summary == event.end()) continue;
      const auto step = event.find(2);
      const auto values = test::read_fields(summary->second.bytes);
      for (auto [value, end] = values.equal_range(1); value != end; ++value) {
        const auto fields = test::read_fields(value->second.bytes);
        const auto histogram = fields.find(5);
        if (histogram == fields.end()) continue;
        found[std::string(fields.find(1)->second.bytes)].push_back(
            shown_of(step == event.end() ? 0 : static_cast<int64_t>(step->second.value),
                     histogram->second.bytes));
      }
    }
  }
  return found;
}

/// Equal but for rounding, which moves some elements to the next bucket.
void expect_same(const Shown& wanted, const Shown& found) {
  EXPECT_EQ(found.step, wanted.step);
  EXPECT_EQ(found.count, wanted.count);
  EXPECT_NEAR(found.sum_of_squares, wanted.sum_of_squares, 1e-4 * wanted.sum_of_squares);
  EXPECT_NEAR(found.min, wanted.min, 1e-4 * std::abs(wanted.min));
  EXPECT_NEAR(found.max, wanted.max, 1e-4 * std::abs(wanted.max));
  std::map<double, double> differences = wanted.buckets;
  for (const auto& [limit, count] : found.buckets) differences[limit] -= count;
  double moved = 0;
  for (const auto& [limit, difference] : differences) moved += std::abs(difference);
  EXPECT_LE(moved, 0.002 * wanted.count + 2);
}

TEST_F(TrackersTest, HistogramsOfGradientsAreTheSameOnAnyRanks) {
  const auto histograms_of = [&](const test::Spread& spread) {
    const test::TemporaryDirectory folder;
    const ProgramResult run = test::run_program(test::on(
        spread,
        test::smoke_run(folder.file("run"),
                        {"--tensorboard.histograms_every_steps=2", "--step_scheduler.max_steps=4",
                         "--step_scheduler.local_batch_size=1", "--checkpoint.enabled=false"})));
    EXPECT_EQ(run.status, 0) << run.err;
    return histograms_in(folder.file("run/tensorboard"));
  };
  const Histograms one = histograms_of({1, {}});
  for (const char* tag : {"gradients/model.layers.0", "gradients/model.norm"}) {
    ASSERT_TRUE(one.contains(tag)) << tag;
    ASSERT_THAT(one.at(tag), SizeIs(2));
    EXPECT_EQ(one.at(tag)[1].step, 2);
  }
  for (const auto& [name, spread] :
       {std::pair<const char*, test::Spread>{"fsdp2", test::sharded(2)},
        {"ddp", {2, {}}},
        {"tensor parallel", test::sharded(4, {"--distributed.tp_size=2"})},
        {"hsdp", test::sharded(4, {"--distributed.dp_replicate_size=2"})}}) {
    SCOPED_TRACE(name);
    const Histograms found = histograms_of(spread);
    ASSERT_EQ(found.size(), one.size());
    for (const auto& [tag, steps] : one) {
      SCOPED_TRACE(tag);
      ASSERT_THAT(found.at(tag), SizeIs(steps.size()));
      for (size_t i = 0; i < steps.size(); ++i) expect_same(steps[i], found.at(tag)[i]);
    }
  }
}

TEST_F(TrackersTest, AFolderThatCannotBeWrittenEndsTheRunBeforeItsFirstStep) {
  const std::string file = folder_.write("file", "");
  const ProgramResult run = test::run_program(run_with({cat("--tensorboard.log_dir=", file)}));
  EXPECT_EQ(run.status, 3);
  EXPECT_THAT(run.err, HasSubstr(file));
  EXPECT_THAT(trained(), IsEmpty());
}

TEST_F(TrackersTest, ADiskThatFillsCostsRecordsAndOneWarning) {
  const std::string logs = folder_.file("logs");
  const test::FailingCalls failing{.folder = logs, .at = 6, .action = "full"};
  const ProgramResult run =
      test::run_program(run_with({cat("--tensorboard.log_dir=", logs)}), failing.environment());
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(trained(), SizeIs(6));
  EXPECT_THAT(run.err, HasSubstr("TensorBoard: records are lost: cannot write "));
  EXPECT_THAT(run.err, HasSubstr(": No space left on device; the run goes on"));
  EXPECT_THAT(run.err, testing::ContainsRegex("TensorBoard lacks [1-6] of 6 records: "));
}

TEST_F(TrackersTest, AnMlflowServerGetsTheRun) {
  const ProgramResult run = test::run_program(
      with_mlflow({"--mlflow.experiment_name=of tests", "--mlflow.run_name=first",
                   "--mlflow.description=what for", "--mlflow.tags.team=a",
                   "--mlflow.artifact_location=s3://bucket/x", "--mlflow.flatten_depth=0"}));
  ASSERT_EQ(run.status, 0) << run.err;
  const auto runs = server_.runs();
  ASSERT_THAT(runs, SizeIs(1));
  const MlflowServedRun& made = runs.begin()->second;
  EXPECT_EQ(made.experiment, "of tests");
  EXPECT_EQ(made.status, "FINISHED");
  EXPECT_EQ(made.tags.at("mlflow.runName"), "first");
  EXPECT_EQ(made.tags.at("mlflow.note.content"), "what for");
  EXPECT_EQ(made.tags.at("team"), "a");
  EXPECT_THAT(made.parameters.at("step_scheduler"), HasSubstr("\"max_steps\": 6"));
  bool has_location = false;
  for (const auto& request : server_.requests()) {
    has_location |=
        request.body.find("\"artifact_location\": \"s3://bucket/x\"") != std::string::npos;
  }
  EXPECT_TRUE(has_location);
  const std::vector<Json> records = trained();
  ASSERT_THAT(records, SizeIs(6));
  std::map<int64_t, std::string> losses;
  for (const auto& point : made.metrics) {
    if (point.key == "loss") losses[point.step] = point.value;
  }
  for (const Json& record : records) {
    EXPECT_EQ(losses[record.at("step").as_int()], record.at("loss").dump());
  }
  EXPECT_THAT(tallies(), ElementsAre("MLflow sent 6 lost 0"));
}

TEST_F(TrackersTest, MlflowHearsOfTheStepsThatItShould) {
  ASSERT_EQ(test::run_program(with_mlflow({"--step_scheduler.log_remote_every_steps=4"})).status,
            0);
  EXPECT_THAT(steps_of(server_.runs().at("run1"), "loss"), ElementsAre(0, 4));
}

TEST_F(TrackersTest, AContinuedRunGoesOnInItsMlflowRun) {
  ASSERT_EQ(test::run_program(with_mlflow()).status, 0);
  ASSERT_EQ(test::run_program(with_mlflow({"--step_scheduler.max_steps=8"})).status, 0);
  ASSERT_THAT(server_.runs(), SizeIs(1));
  EXPECT_THAT(steps_of(server_.runs().at("run1"), "loss"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

/// The records are the same as without a tracker, whatever the server does.
TEST_F(TrackersTest, AServerThatFailsChangesNothing) {
  const HttpReply nonsense{.status = 200, .body = "<html>"};
  const HttpReply broken{.status = 500, .body = ""};
  for (const HttpReply& fault : {nonsense, broken}) {
    remove_tree(place_);
    server_.set_fault(fault);
    const ProgramResult run = test::run_program(with_mlflow());
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(trained(), SizeIs(6));
    EXPECT_THAT(run.err, HasSubstr("trying again while the run goes on"));
    EXPECT_THAT(run.err, HasSubstr("MLflow knows nothing of this run: " + server_.address()));
    EXPECT_THAT(tallies(), ElementsAre("MLflow sent 0 lost 6"));
  }
}

TEST_F(TrackersTest, AFailedRunIsAFailedRunThere) {
  const ProgramResult run = test::run_program(with_mlflow({"--optimizer.lr=1e30"}));
  EXPECT_EQ(run.status, 5) << run.err;
  EXPECT_EQ(server_.runs().at("run1").status, "FAILED");
  EXPECT_EQ(test::read_records(path_join(place_, "events.jsonl")).back().at("event").as_string(),
            "failure");
}

TEST_F(TrackersTest, ATokenIsSentAndShownNowhere) {
  server_.demand("Bearer of-this-test");
  const ProgramResult run = test::run_program(with_mlflow({"--tensorboard.enable=true"}),
                                              {"MLFLOW_TRACKING_TOKEN=of-this-test"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(server_.runs().at("run1").status, "FINISHED");
  EXPECT_THAT(run.out + run.err, Not(HasSubstr("of-this-test")));
  for (const char* file : {"run.json", "events.jsonl", "mlflow_run_id"}) {
    EXPECT_THAT(read_file(path_join(place_, file)), Not(HasSubstr("of-this-test")));
  }
}

/// Of two ranks one tracks.
TEST_F(TrackersTest, OneRankTracks) {
  const ProgramResult run =
      test::run_program(with_mlflow({"--nproc-per-node", "2", "--tensorboard.enable=true"}));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(server_.runs(), SizeIs(1));
  EXPECT_THAT(steps_of(server_.runs().at("run1"), "loss"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(list_directory(path_join(place_, "tensorboard")), SizeIs(1));
}

}  // namespace
}  // namespace automodel::recipes
