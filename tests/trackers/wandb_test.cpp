#include "trackers/wandb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/timestamp.h"
#include "support/errors.h"
#include "trackers/background_tracker.h"
#include "trackers/wandb_rows.h"
#include "wandb_fixture.h"

namespace automodel::trackers {
namespace {

using test::HttpReply;
using test::WandbServedRun;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using Outcome = Delivery::Outcome;

constexpr double kPatience = 60;

std::vector<std::string> texts_of_rows(const std::vector<Json>& rows) {
  std::vector<std::string> texts;
  for (const Json& row : rows) texts.push_back(text_of_row(row));
  return texts;
}

std::vector<int64_t> steps_of(const std::vector<Json>& rows) {
  std::vector<int64_t> steps;
  for (const Json& row : rows) steps.push_back(row.at("_step").as_int());
  return steps;
}

TEST_F(WandbTest, ARunIsMadeInItsProject) {
  server_.demand("a key");
  run_.settings.entity = "a team";
  run_.settings.group = "a group";
  run_.settings.notes = "what it is for";
  run_.settings.job_type = "train";
  run_.settings.tags = {"a", "b"};
  const auto tracker = wandb();
  ASSERT_EQ(tracker->start().problem, "");
  const WandbServedRun made = only_run();
  EXPECT_EQ(made.project, "a project");
  EXPECT_EQ(made.entity, "a team");
  Json told = made.variables;
  EXPECT_EQ(told.at("name").as_string(), kept_id());
  EXPECT_THAT(kept_id(), SizeIs(8));
  EXPECT_NE(told.at("host").as_string(), "");
  for (const char* name : {"name", "host"}) told.erase(name);
  EXPECT_EQ(told.dump(),
            R"({"id": null, "project": "a project", "entity": "a team", "groupName": "a group", )"
            R"("displayName": "org_model", "notes": "what it is for", "jobType": "train", )"
            R"("tags": ["a", "b"], "config": "{\"seed\": {\"value\": 42}, \"optimizer\": )"
            R"({\"value\": {\"lr\": 0.001, \"eps\": \"Infinity\"}}}", "program": "recipe.yaml"})");
  // Another run, of which less is said.
  run_.settings.entity = run_.settings.notes = "";
  run_.settings.name = "named";
  ASSERT_EQ(wandb()->start().problem, "");
  const auto runs = server_.runs();
  ASSERT_THAT(runs, SizeIs(2));
  const WandbServedRun& second = runs.at(kept_id());
  EXPECT_EQ(second.variables.at("displayName").as_string(), "named");
  EXPECT_TRUE(second.variables.at("entity").is_null());
  EXPECT_EQ(second.entity, "someone");
}

/// W&B takes one row a step: what records of a step say comes together.
TEST_F(WandbTest, AStepIsARow) {
  const auto tracker = wandb();
  ASSERT_EQ(tracker->start().problem, "");
  const Records records = {
      record(R"({"step": 3, "epoch": 0, "loss": 0.25, "mfu": null, "grad_norm": NaN})"),
      record(R"({"step": 3, "val_loss": 0.5, "lr": 1.0})", "default"),
      record(R"({"step": 3, "val_loss": 0.5})", "code!")};
  EXPECT_EQ(tracker->deliver(records).num_records, 3U);
  EXPECT_THAT(only_run().rows, IsEmpty());  // more may come
  EXPECT_EQ(tracker->deliver(Records{record(5)}).outcome, Outcome::kDone);
  const std::string first = R"({"epoch": 0.0, "loss": 0.25, "grad_norm": NaN, "_step": 3, )"
                            R"("val_loss": 0.5, "val_lr": 1.0, "val_code!/val_loss": 0.5})";
  EXPECT_THAT(texts_of_rows(only_run().rows), ElementsAre(first));
  EXPECT_EQ(tracker->finish(RunEnd::kFinished).outcome, Outcome::kDone);
  EXPECT_THAT(texts_of_rows(only_run().rows), ElementsAre(first, R"({"loss": 5.5, "_step": 5})"));
  Json summary = only_run().summary;
  EXPECT_EQ(summary.at("_wandb").dump(), R"({"runtime": 0})");
  summary.erase("_wandb");
  EXPECT_EQ(text_of_row(summary),
            R"({"epoch": 0.0, "loss": 5.5, "grad_norm": NaN, "_step": 5, "val_loss": 0.5, )"
            R"("val_lr": 1.0, "val_code!/val_loss": 0.5})");
}

TEST_F(WandbTest, TheEndIsToldAsItWas) {
  for (const auto& [end, code] : {std::pair{RunEnd::kFinished, 0}, std::pair{RunEnd::kFailed, 1},
                                  std::pair{RunEnd::kStopped, 75}}) {
    const auto tracker = wandb();
    ASSERT_EQ(tracker->start().problem, "");
    EXPECT_EQ(tracker->finish(end).outcome, Outcome::kDone);
    const WandbServedRun run = server_.runs().at(kept_id());
    EXPECT_EQ(run.exit_code, code);
    EXPECT_EQ(run.is_preempting, end == RunEnd::kStopped);
  }
}

TEST_F(WandbTest, AContinuedRunGoesOnInItsRun) {
  const auto first = wandb();
  ASSERT_EQ(first->start().problem, "");
  first->deliver(Records{record(1), record(2), record(R"({"step": 3, "only_here": 1.5})")});
  first->finish(RunEnd::kFailed);
  run_.is_resumed = true;
  const auto second = wandb();
  ASSERT_EQ(second->start().problem, "");
  EXPECT_EQ(only_run().variables.at("id").as_string(), "stored-" + kept_id());
  second->deliver(Records{record(2), record(3), record(4), record(5)});  // from its checkpoint on
  second->finish(RunEnd::kFinished);
  ASSERT_THAT(steps_of(only_run().rows), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(only_run().rows[2].get("only_here", 0.0), 1.5);
  EXPECT_GE(only_run().rows[3].at("_runtime").as_double(),
            only_run().rows[2].at("_runtime").as_double());
  EXPECT_EQ(only_run().summary.get("only_here", 0.0), 1.5);
  EXPECT_EQ(only_run().exit_code, 0);
  EXPECT_THAT(warnings_.texts, IsEmpty());
  // Without a checkpoint to continue from, it is another run.
  run_.is_resumed = false;
  ASSERT_EQ(wandb()->start().problem, "");
  EXPECT_THAT(server_.runs(), SizeIs(2));
}

/// A start that was killed has not sent all that it has logged.
TEST_F(WandbTest, AContinuedRunSendsWhatTheServerLacks) {
  const auto first = wandb();
  ASSERT_EQ(first->start().problem, "");
  first->deliver(Records{record(0), record(1), record(2)});  // 2 may have had more
  run_.is_resumed = true;
  run_.earlier = [](int64_t last_step) {
    EXPECT_EQ(last_step, 1);
    return Records{record(2), record(R"({"step": 2, "val_loss": 7.5})", "default"), record(3)};
  };
  const auto second = wandb();
  ASSERT_EQ(second->start().problem, "");
  second->deliver(Records{record(4)});
  second->finish(RunEnd::kFinished);
  EXPECT_THAT(steps_of(only_run().rows), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(only_run().rows[2].at("val_loss").as_double(), 7.5);
}

TEST_F(WandbTest, EarlierStepsThatAreRefusedEndNothing) {
  run_.settings.run_id = "mine";
  run_.settings.resume = WandbResume::kAllow;
  run_.is_resumed = true;
  run_.earlier = [&](int64_t) {
    server_.add_faults({{.status = 503, .body = ""}});
    return Records{record(0), record(1)};
  };
  const auto tracker = wandb();
  EXPECT_EQ(tracker->start().outcome, Outcome::kLater);
  server_.add_faults({{.status = 400, .body = ""}});
  EXPECT_EQ(tracker->start().outcome, Outcome::kDone);
  EXPECT_THAT(warnings_.texts, ElementsAre(HasSubstr("steps before this start are missing: ")));
  tracker->deliver(Records{record(2)});
  tracker->finish(RunEnd::kFinished);
  EXPECT_THAT(steps_of(only_run().rows), ElementsAre(1, 2));  // 1 was held
}

TEST_F(WandbTest, ARunWithTheSameIdIsReplacedWithAWarning) {
  run_.settings.run_id = "mine";
  ASSERT_EQ(wandb()->start().problem, "");
  EXPECT_THAT(warnings_.texts, IsEmpty());
  ASSERT_EQ(wandb()->start().problem, "");
  EXPECT_THAT(warnings_.texts, ElementsAre(HasSubstr("run mine was there; its rows are replaced")));
}

TEST_F(WandbTest, ARowThatTheEndCouldNotSendIsLost) {
  auto tracker = queued();
  tracker->add(record(1));
  tracker->add(record(2));
  tracker->add(record(R"({"step": 2, "val_loss": 7.5})", "default"));
  wait([&] { return !server_.runs().empty() && !only_run().rows.empty(); });
  server_.set_fault(HttpReply{.status = 403, .body = ""});
  const Tally tally = tracker->end(RunEnd::kFinished, kPatience);
  EXPECT_EQ(tally.num_sent, 1);
  EXPECT_EQ(tally.num_lost, 2);
  EXPECT_FALSE(tally.has_finished);
}

/// Whatever an answer holds, nothing of it is taken for what it is not.
TEST_F(WandbTest, OddAnswersAreNoRows) {
  run_.settings.run_id = "mine";
  run_.settings.resume = WandbResume::kAllow;
  for (const char* bucket :
       {R"({"id": 7, "historyLineCount": 1e300, "historyTail": "[5]", "summaryMetrics": "[]"})",
        R"({"historyLineCount": -3, "historyTail": "[\"{\\\"_step\\\": NaN}\"]"})",
        R"({"historyLineCount": "x", "historyTail": 5, "summaryMetrics": "{\"_wandb\": 5}"})"}) {
    server_.add_faults(
        {{.status = 200, .body = cat(R"({"data": {"model": {"bucket": )", bucket, "}}}")}});
    const auto tracker = wandb();
    ASSERT_EQ(tracker->start().problem, "") << bucket;
    EXPECT_EQ(tracker->deliver(Records{record(0), record(1)}).problem, "") << bucket;
    EXPECT_EQ(tracker->finish(RunEnd::kFinished).outcome, Outcome::kDone) << bucket;
    EXPECT_THAT(steps_of(only_run().rows), ElementsAre(0, 1)) << bucket;
  }
  server_.add_faults({{.status = 302,
                       .body = "",
                       .fields = cat("Location: http://x/", std::string(5000, 'y'), "\r\n")}});
  EXPECT_LT(wandb()->start().problem.size(), 500U);
}

TEST_F(WandbTest, ARunToGoOnInNeedsAnId) {
  run_.settings.resume = WandbResume::kMust;
  const std::string text =
      "wandb.resume: must needs the id of a run: set wandb.id, or WANDB_RUN_ID";
  EXPECT_EQ(test::error_of<UserError>([&] { wandb(); }), text);
  EXPECT_EQ(test::error_of<UserError>([&] { offline(); }), text);
}

TEST_F(WandbTest, ResumeSaysWhatBecomesOfARunThatIsThere) {
  run_.settings.run_id = "mine";
  const auto rows_after = [&](std::optional<WandbResume> resume) {
    run_.settings.resume = resume;
    const auto tracker = wandb();
    const Delivery started = tracker->start();
    if (started.outcome != Outcome::kDone) return started.problem;
    const auto last = static_cast<int64_t>(server_.runs().at("mine").rows.size());
    tracker->deliver(Records{record(last)});
    tracker->finish(RunEnd::kFinished);
    return cat(server_.runs().at("mine").rows.size(), " rows");
  };
  EXPECT_EQ(rows_after(WandbResume::kMust),
            server_.address() + " has no run mine to go on in [wandb.resume]");
  EXPECT_EQ(rows_after(WandbResume::kNever), "1 rows");
  EXPECT_EQ(rows_after(WandbResume::kAllow), "2 rows");
  EXPECT_EQ(rows_after(WandbResume::kAuto), "3 rows");
  EXPECT_EQ(rows_after(WandbResume::kMust), "4 rows");
  EXPECT_EQ(rows_after(WandbResume::kNever),
            server_.address() + " has a run mine already [wandb.resume]");
  EXPECT_EQ(rows_after(std::nullopt), "1 rows");  // begun anew, as wandb does
}

TEST_F(WandbTest, NeverMakesANewRunOfAContinuedOne) {
  ASSERT_EQ(wandb()->start().problem, "");
  run_.is_resumed = true;
  run_.settings.resume = WandbResume::kNever;
  ASSERT_EQ(wandb()->start().problem, "");
  EXPECT_THAT(server_.runs(), SizeIs(2));
}

/// Whether the request or its answer was lost, no row is there twice and none is missing.
TEST_F(WandbTest, WhatPassesIsTriedAgain) {
  server_.set_fault(HttpReply{.status = 503, .body = ""});
  auto tracker = queued();
  for (int64_t step = 0; step < 5; ++step) tracker->add(record(step));
  wait([&] { return server_.requests().size() >= 3; });
  server_.add_faults({{.hangs_up = true},
                      {.status = 429, .body = "{}"},
                      {.status = 200, .body = "<html>a portal</html>"}});
  server_.set_fault(std::nullopt);
  wait([&] { return !server_.runs().empty(); });
  const Tally tally = tracker->end(RunEnd::kFinished, kPatience);
  EXPECT_EQ(tally.num_sent, 5);
  EXPECT_EQ(tally.num_lost, 0);
  EXPECT_TRUE(tally.has_finished);
  EXPECT_THAT(steps_of(only_run().rows), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(warnings_.texts, ElementsAre(HasSubstr("trying again while the run goes on")));
}

TEST_F(WandbTest, LinesThatWereTakenWithoutAnAnswerAreSentAgain) {
  const auto tracker = wandb();
  ASSERT_EQ(tracker->start().problem, "");
  const Records records = {record(1), record(2)};
  ASSERT_EQ(tracker->deliver(records).outcome, Outcome::kDone);
  const Records more = {record(3), record(4)};
  server_.add_faults({{.status = 500, .body = ""}});
  EXPECT_EQ(tracker->deliver(more).outcome, Outcome::kLater);
  EXPECT_EQ(tracker->deliver(more).outcome, Outcome::kDone);
  tracker->finish(RunEnd::kFinished);
  EXPECT_THAT(steps_of(only_run().rows), ElementsAre(1, 2, 3, 4));
}

TEST_F(WandbTest, WhatIsRefusedSaysWhy) {
  server_.demand("another key");
  const Delivery refused = wandb()->start();
  EXPECT_EQ(refused.outcome, Outcome::kRefused);
  EXPECT_EQ(refused.problem, server_.address() +
                                 " answers 401 (user is not logged in): it does not take the API "
                                 "key of WANDB_API_KEY");
  server_.demand("a key");
  const auto tracker = wandb();
  ASSERT_EQ(tracker->start().problem, "");
  tracker->deliver(Records{record(1)});
  server_.add_faults({{.status = 400, .body = R"({"error": "not so"})"}});
  const Delivery lost = tracker->deliver(Records{record(2), record(3)});
  EXPECT_EQ(lost.outcome, Outcome::kRefused);
  EXPECT_EQ(lost.num_records, 2U);
  EXPECT_EQ(lost.problem, server_.address() + " answers 400 (not so)");
  server_.add_faults(
      {{.status = 200, .body = R"({"errors": [{"message": "no permission"}], "data": null})"}});
  run_.settings.run_id = "x";
  EXPECT_EQ(wandb()->start().problem, server_.address() + " refuses (no permission)");
  // What comes later is taken.
  EXPECT_EQ(tracker->deliver(Records{record(4), record(5)}).outcome, Outcome::kDone);
  EXPECT_THAT(steps_of(server_.runs().at(kept_id()).rows), ElementsAre(3, 4));
}

TEST_F(WandbTest, ARunThatIsSlowSaysThatItIsThere) {
  const auto tracker = wandb();
  ASSERT_EQ(tracker->start().problem, "");
  EXPECT_EQ(tracker->idle_seconds(), 30);
  tracker->idle();
  tracker->idle();
  EXPECT_EQ(only_run().num_heartbeats, 2);
}

TEST(WandbRowsTest, StepsThatAreDoneAgainAreLeftOut) {
  WandbRows rows(unix_seconds());
  const auto add = [&](int64_t step) {
    const auto row = rows.add(*record(step));
    return row ? row->step : -1;
  };
  EXPECT_EQ(add(1), -1);
  EXPECT_EQ(add(2), 1);
  EXPECT_EQ(add(3), 2);
  EXPECT_FALSE(rows.has_left_out());
  EXPECT_EQ(add(2), -1);
  EXPECT_TRUE(rows.has_left_out());
  EXPECT_EQ(add(3), -1);  // its row is open still
  EXPECT_EQ(add(4), 3);
  EXPECT_EQ(rows.end()->step, 4);
  EXPECT_FALSE(rows.end().has_value());
  EXPECT_EQ(add(4), -1);
  EXPECT_FALSE(rows.end().has_value());
  // Histograms alone are no row.
  EXPECT_FALSE(rows.add(*record(R"({"step": 9})")).has_value());
  EXPECT_FALSE(rows.end().has_value());
}

}  // namespace
}  // namespace automodel::trackers
