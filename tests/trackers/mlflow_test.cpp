#include "trackers/mlflow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "core/clock.h"
#include "core/file.h"
#include "support/errors.h"
#include "support/mlflow_server.h"
#include "support/temporary_directory.h"
#include "trackers/background_tracker.h"

namespace automodel::trackers {
namespace {

using test::HttpReply;
using test::MlflowServedRun;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::SizeIs;
using Outcome = Delivery::Outcome;
using Records = std::vector<std::shared_ptr<const Record>>;

constexpr double kPatience = 60;

std::shared_ptr<const Record> record(const std::string& json, std::string set = "") {
  return std::make_shared<const Record>(record_of(Json::parse(json, "record"), std::move(set)));
}

std::shared_ptr<const Record> record(int64_t step) {
  return record(cat("{\"step\": ", step, ", \"loss\": ", step, ".5}"));
}

std::vector<int64_t> steps_of(const MlflowServedRun& run) {
  std::vector<int64_t> steps;
  for (const auto& point : run.metrics) steps.push_back(point.step);
  return steps;
}

class MlflowTest : public testing::Test {
 protected:
  MlflowTest() {
    run_.config.experiment_name = "an experiment";
    run_.settings.tracking_uri = server_.address();
    run_.settings.timeout_seconds = 10;
    run_.folder = folder_.path();
    run_.parameters = {{"seed", "42"}, {"optimizer.lr", "0.001"}};
    run_.source = "recipe.yaml";
  }

  std::unique_ptr<Tracker> mlflow() {
    return make_mlflow(run_, std::make_shared<LeavingReporter>(warnings_));
  }
  /// A tracker behind a queue that tries again at once.
  std::unique_ptr<BackgroundTracker> queued(size_t most_values = 100'000) {
    QueueOptions options;
    options.most_values = most_values;
    options.backoff_seconds = 0.01;
    options.longest_backoff_seconds = 0.05;
    auto reporter = std::make_shared<LeavingReporter>(warnings_);
    return std::make_unique<BackgroundTracker>(make_mlflow(run_, reporter), options, reporter);
  }
  MlflowServedRun only_run() const {
    const auto runs = server_.runs();
    EXPECT_THAT(runs, SizeIs(1));
    return runs.empty() ? MlflowServedRun{} : runs.begin()->second;
  }
  void wait_for_metrics(size_t count) const {
    wait([&] { return server_.runs().contains("run1") && only_run().metrics.size() >= count; });
  }
  /// Waits until the server has been asked so often.
  void wait_for_requests(size_t count) const {
    wait([&] { return server_.requests().size() >= count; });
  }
  static void wait(const std::function<bool()>& condition) {
    const double deadline = monotonic_seconds() + kPatience;
    while (!condition()) {
      ASSERT_LT(monotonic_seconds(), deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  test::TemporaryDirectory folder_;
  test::Warnings warnings_;
  test::MlflowServer server_;
  MlflowRun run_;
};

TEST_F(MlflowTest, ARunIsMadeInItsExperiment) {
  run_.config.run_name = "first";
  run_.config.description = "what it is for";
  run_.config.tags = {{"team", "a"}};
  run_.settings.user_name = "me";
  const auto tracker = mlflow();
  ASSERT_EQ(tracker->start().problem, "");
  EXPECT_THAT(server_.experiments(), ElementsAre(Pair("1", "an experiment")));
  const MlflowServedRun made = only_run();
  EXPECT_EQ(made.experiment, "an experiment");
  EXPECT_THAT(
      made.tags,
      ElementsAre(Pair("mlflow.note.content", "what it is for"), Pair("mlflow.runName", "first"),
                  Pair("mlflow.source.name", "recipe.yaml"), Pair("mlflow.source.type", "LOCAL"),
                  Pair("mlflow.user", "me"), Pair("team", "a")));
  EXPECT_THAT(made.parameters, ElementsAre(Pair("optimizer.lr", "0.001"), Pair("seed", "42")));
  EXPECT_EQ(read_file(folder_.file("mlflow_run_id")), "run1\n");
  // Another run of the same experiment.
  ASSERT_EQ(mlflow()->start().problem, "");
  EXPECT_THAT(server_.experiments(), SizeIs(1));
  EXPECT_THAT(server_.runs(), SizeIs(2));
}

TEST_F(MlflowTest, RecordsAreMetricsOfTheirStep) {
  const auto tracker = mlflow();
  ASSERT_EQ(tracker->start().problem, "");
  const Records records = {record(R"({"step": 3, "epoch": 0, "loss": 0.25, "mfu": null,
                                      "timestamp": "now", "grad_norm": NaN, "tps": Infinity})"),
                           record(R"({"step": 3, "val_loss": 0.5, "lr": 1.0})", "default"),
                           record(R"({"step": 3, "val_loss": 0.5})", "code!")};
  const Delivery delivery = tracker->deliver(records);
  EXPECT_EQ(delivery.outcome, Outcome::kDone);
  EXPECT_EQ(delivery.num_records, 3U);
  std::vector<std::string> told;
  for (const auto& point : only_run().metrics) {
    told.push_back(cat(point.step, " ", point.key, " ", point.value));
    EXPECT_GT(point.timestamp, 1'700'000'000'000);
  }
  EXPECT_THAT(told,
              ElementsAre("3 epoch 0.0", "3 loss 0.25", "3 grad_norm \"NaN\"", "3 tps \"Infinity\"",
                          "3 val_loss 0.5", "3 val_lr 1.0", "3 val_code_/val_loss 0.5"));
}

TEST_F(MlflowTest, TheEndIsToldAsItWas) {
  const auto tracker = mlflow();
  ASSERT_EQ(tracker->start().problem, "");
  for (const auto& [end, status] :
       {std::pair{RunEnd::kFinished, "FINISHED"}, std::pair{RunEnd::kFailed, "FAILED"},
        std::pair{RunEnd::kStopped, "KILLED"}}) {
    EXPECT_EQ(tracker->finish(end).outcome, Outcome::kDone);
    EXPECT_EQ(only_run().status, status);
  }
}

/// MLflow takes 1000 metrics and 100 parameters a request.
TEST_F(MlflowTest, RequestsKeepToTheServersLimits) {
  for (int i = 0; i < 250; ++i) run_.parameters.emplace_back(cat("p", i), "x");
  auto tracker = queued();
  Record large;
  large.values.resize(2500, {"m", 1.0});
  for (int64_t step = 0; step < 3; ++step) {
    large.step = step;
    tracker->add(std::make_shared<const Record>(large));
  }
  const Tally tally = tracker->end(RunEnd::kFinished, kPatience);
  EXPECT_EQ(tally.num_sent, 3);
  EXPECT_EQ(tally.num_lost, 0);
  EXPECT_THAT(only_run().parameters, SizeIs(252));
  EXPECT_THAT(only_run().metrics, SizeIs(7500));
  EXPECT_THAT(warnings_.texts, IsEmpty());
}

TEST_F(MlflowTest, AContinuedRunGoesOnInItsRun) {
  ASSERT_EQ(mlflow()->start().problem, "");
  run_.is_resumed = true;
  run_.parameters = {{"seed", "43"}};  // what a run was begun with stays
  const auto tracker = mlflow();
  ASSERT_EQ(tracker->start().problem, "");
  tracker->deliver(Records{record(9)});
  EXPECT_THAT(steps_of(only_run()), ElementsAre(9));
  EXPECT_THAT(only_run().parameters,
              ElementsAre(Pair("optimizer.lr", "0.001"), Pair("seed", "42")));
  EXPECT_THAT(warnings_.texts, IsEmpty());
  run_.config.resume = false;
  ASSERT_EQ(mlflow()->start().problem, "");
  EXPECT_THAT(server_.runs(), SizeIs(2));
}

TEST_F(MlflowTest, ARunThatSomebodyElseHasMadeGetsTagsDescriptionAndParameters) {
  const std::vector<std::pair<std::string, std::string>> parameters =
      std::exchange(run_.parameters, {});
  ASSERT_EQ(mlflow()->start().problem, "");  // somebody else
  run_.settings.run_id = "run1";
  run_.config.description = "what it is for";
  run_.config.tags = {{"team", "a"}};
  run_.parameters = parameters;
  const auto tracker = mlflow();
  server_.add_faults({{.status = 500, .body = ""}});
  while (tracker->start().outcome == Outcome::kLater) {
  }
  EXPECT_THAT(only_run().tags, testing::IsSupersetOf(std::map<std::string, std::string>{
                                   {"mlflow.note.content", "what it is for"}, {"team", "a"}}));
  EXPECT_THAT(only_run().parameters,
              ElementsAre(Pair("optimizer.lr", "0.001"), Pair("seed", "42")));
  EXPECT_EQ(read_file(folder_.file("mlflow_run_id")), "run1\n");
  EXPECT_THAT(warnings_.texts, IsEmpty());
}

TEST_F(MlflowTest, ARunThatTheServerDoesNotHaveIsMadeAnew) {
  folder_.write("mlflow_run_id", "elsewhere\n");
  run_.is_resumed = true;
  ASSERT_EQ(mlflow()->start().problem, "");
  EXPECT_THAT(server_.runs(), SizeIs(1));
  EXPECT_EQ(read_file(folder_.file("mlflow_run_id")), "run1\n");
  EXPECT_THAT(warnings_.texts,
              ElementsAre(cat("MLflow: cannot go on in run elsewhere: ", server_.address(),
                              " answers 404 (Run not found); a new run is made")));
}

TEST_F(MlflowTest, FailuresThatPassLoseNothing) {
  const HttpReply broken{.status = 500, .body = "<html>no</html>"};
  const HttpReply busy{.status = 429, .body = "{}"};
  const HttpReply nonsense{.status = 200, .body = "<html>a proxy's page</html>"};
  const HttpReply list{.status = 200, .body = "[1, 2]"};
  const HttpReply gone{
      .status = 200, .body = "", .fields = "", .pause_seconds = 0, .hangs_up = true};
  server_.add_faults({broken, busy, nonsense, list, gone});
  auto tracker = queued();
  for (int64_t step = 0; step < 20; ++step) tracker->add(record(step));
  wait_for_metrics(20);
  server_.add_faults({broken, nonsense, gone});
  for (int64_t step = 20; step < 40; ++step) tracker->add(record(step));
  wait_for_metrics(40);
  const Tally tally = tracker->end(RunEnd::kFinished, kPatience);
  EXPECT_EQ(tally.num_sent, 40) << tally.problem;
  EXPECT_EQ(tally.num_lost, 0);
  const std::vector<int64_t> steps = steps_of(only_run());
  ASSERT_THAT(steps, SizeIs(40));
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  ASSERT_FALSE(warnings_.texts.empty());
  EXPECT_EQ(warnings_.texts[0],
            cat("MLflow: ", server_.address(), " answers 500; trying again while the run goes on"));
}

TEST_F(MlflowTest, WhatIsLostWhileAServerIsDownIsCounted) {
  auto tracker = queued(10);
  tracker->add(record(0));
  wait_for_metrics(1);
  server_.set_fault(HttpReply{.status = 503, .body = ""});
  for (int64_t step = 1; step <= 100; ++step) tracker->add(record(step));
  wait_for_requests(8);
  server_.set_fault(std::nullopt);
  const Tally tally = tracker->end(RunEnd::kFinished, kPatience);
  EXPECT_EQ(tally.num_sent + tally.num_lost, 101);
  EXPECT_GE(tally.num_sent, 10);
  EXPECT_GE(tally.num_lost, 50);
  EXPECT_EQ(steps_of(only_run()).back(), 100);
  EXPECT_EQ(only_run().metrics.size(), static_cast<size_t>(tally.num_sent));
  EXPECT_EQ(only_run().status, "FINISHED");
}

TEST_F(MlflowTest, AServerThatNobodyRunsIsGivenUpAtTheEnd) {
  {
    const test::HttpServer closed([](const auto&) { return HttpReply{}; });
    run_.settings.tracking_uri = closed.address();
  }
  auto tracker = queued();
  for (int64_t step = 0; step < 10; ++step) tracker->add(record(step));
  const Tally tally = tracker->end(RunEnd::kFinished, kPatience);
  EXPECT_FALSE(tally.has_started);
  EXPECT_EQ(tally.num_lost, 10);
  EXPECT_THAT(tally.problem, HasSubstr(run_.settings.tracking_uri));
  EXPECT_THAT(tally.problem, HasSubstr("connect"));
}

TEST_F(MlflowTest, AServerThatDoesNotAnswerHoldsUpTheEndForItsTimeOnly) {
  server_.set_fault(HttpReply{.status = 200, .body = "{}", .fields = "", .pause_seconds = 600});
  run_.settings.timeout_seconds = 600;
  auto tracker = queued();
  tracker->add(record(0));
  wait_for_requests(1);
  const double begin = monotonic_seconds();
  const Tally tally = tracker->end(RunEnd::kFinished, 0.1);
  EXPECT_LT(monotonic_seconds() - begin, 10);
  EXPECT_EQ(tally.num_lost, 1);
  EXPECT_EQ(tally.problem, "no answer within 0.1 s");
}

TEST_F(MlflowTest, AnAnswerThatTakesTooLongIsAskedForAgain) {
  run_.settings.timeout_seconds = 0.2;
  server_.add_faults({HttpReply{.status = 200, .body = "{}", .fields = "", .pause_seconds = 2}});
  const auto tracker = mlflow();
  const Delivery late = tracker->start();
  EXPECT_EQ(late.outcome, Outcome::kLater);
  EXPECT_THAT(late.problem, HasSubstr("timed out"));
  EXPECT_EQ(tracker->start().problem, "");
}

TEST_F(MlflowTest, CredentialsAreSentAndNeverSaid) {
  server_.demand("Bearer a secret");
  const Delivery without = mlflow()->start();
  EXPECT_EQ(without.outcome, Outcome::kRefused);
  EXPECT_EQ(without.problem, cat(server_.address(),
                                 " answers 401 (who are you?): it wants credentials; set "
                                 "MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and "
                                 "MLFLOW_TRACKING_PASSWORD"));
  run_.settings.token = "another secret";
  const Delivery wrong = mlflow()->start();
  EXPECT_EQ(
      wrong.problem,
      cat(server_.address(),
          " answers 401 (who are you?): it does not take the credentials of MLFLOW_TRACKING_*"));
  run_.settings.token = "a secret";
  EXPECT_EQ(mlflow()->start().problem, "");
  server_.demand("Basic bWU6aGlkZGVu");  // me:hidden
  run_.settings.token = "";
  run_.settings.user = "me";
  run_.settings.password = "hidden";
  EXPECT_EQ(mlflow()->start().problem, "");
}

TEST_F(MlflowTest, ARedirectIsNotFollowed) {
  server_.set_fault(
      HttpReply{.status = 302, .body = "", .fields = "Location: http://elsewhere/\r\n"});
  run_.is_resumed = true;
  folder_.write("mlflow_run_id", "run1");
  const Delivery delivery = mlflow()->start();
  EXPECT_EQ(delivery.outcome, Outcome::kRefused);
  EXPECT_EQ(delivery.problem, cat(server_.address(),
                                  " answers 302, a redirect to 'http://elsewhere/': set "
                                  "tracking_uri to where the server is"));
}

TEST(MlflowParametersTest, TheRecipesValuesAreFlattened) {
  const Json values = Json::parse(
      R"({"seed": {"value": 7, "origin": "r.yaml:1"},
          "optimizer.lr": {"value": 0.001, "origin": "command line"},
          "optimizer.betas": {"value": [0.9, 0.95], "origin": "r.yaml:3"},
          "model.config.hidden_size": {"value": 64, "origin": "r.yaml:4"},
          "model.config.name": {"value": "a", "origin": "r.yaml:5"},
          "model.dtype": {"value": "auto", "origin": "default"},
          "w[0].x": {"value": true, "origin": "r.yaml:6"}})",
      "values");
  EXPECT_THAT(mlflow_parameters(values, 1),
              ElementsAre(Pair("seed", "7"), Pair("optimizer.lr", "0.001"),
                          Pair("optimizer.betas", "[0.9, 0.95]"), Pair("w_0_.x", "true"),
                          Pair("model.config", R"({"hidden_size": 64, "name": "a"})")));
  EXPECT_THAT(mlflow_parameters(values, std::nullopt),
              testing::Contains(Pair("model.config.hidden_size", "64")));
  EXPECT_THAT(mlflow_parameters(values, 0),
              testing::Contains(Pair("optimizer", R"({"lr": 0.001, "betas": [0.9, 0.95]})")));
}

TEST(MlflowParametersTest, AKeyBelowAValueKeepsItsDot) {
  const auto tags = [](const std::vector<std::string>& keys) {
    Json values = Json::object();
    for (const std::string& key : keys) {
      values[cat("m.tags.", key)]["value"] = key;
      values[cat("m.tags.", key)]["origin"] = "r.yaml:1";
    }
    return mlflow_parameters(values, 1);
  };
  EXPECT_THAT(tags({"a", "a.b"}), ElementsAre(Pair("m.tags", R"({"a": "a", "a.b": "a.b"})")));
  EXPECT_THAT(tags({"a.b", "a"}), ElementsAre(Pair("m.tags", R"({"a": "a", "a.b": "a.b"})")));
  EXPECT_THAT(tags({"a.b", "a.c"}),
              ElementsAre(Pair("m.tags", R"({"a": {"b": "a.b", "c": "a.c"}})")));
}

TEST(MlflowParametersTest, LongValuesAreCutBetweenCharacters) {
  std::string text(5999, 'x');
  text += "\xc3\xa9";  // would end after 6001 bytes
  Json values = Json::object();
  values["a"]["value"] = text;
  values["a"]["origin"] = "r.yaml:1";
  EXPECT_EQ(mlflow_parameters(values, 1).at(0).second, std::string(5999, 'x'));
}

}  // namespace
}  // namespace automodel::trackers
