#include "trackers/wandb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "event_reader.h"
#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"
#include "support/wandb_server.h"
#include "trackers/background_tracker.h"
#include "trackers/wandb_file.h"
#include "trackers/wandb_rows.h"

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
using Records = std::vector<std::shared_ptr<const Record>>;

constexpr double kPatience = 60;

std::shared_ptr<const Record> record(const std::string& json, std::string set = "") {
  return std::make_shared<const Record>(record_of(Json::parse(json, "record"), std::move(set)));
}

std::shared_ptr<const Record> record(int64_t step) {
  return record(cat("{\"step\": ", step, ", \"loss\": ", step, ".5}"));
}

/// A row without its times, which are checked.
std::string text_of_row(const Json& row) {
  Json values = row;
  EXPECT_GT(values.at("_timestamp").as_double(), 1.7e9);
  EXPECT_GE(values.at("_runtime").as_double(), 0);
  for (const char* name : {"_timestamp", "_runtime"}) values.erase(name);
  return values.dump();
}

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

class WandbTest : public testing::Test {
 protected:
  WandbTest() {
    run_.settings.project = "a project";
    run_.settings.server = server_.address();
    run_.settings.app = "https://app";
    run_.settings.api_key = "a key";
    run_.settings.key_place = "WANDB_API_KEY";
    run_.settings.timeout_seconds = 10;
    run_.folder = folder_.path();
    run_.default_name = "org_model";
    run_.values = Json::parse(R"({"seed": 42, "optimizer": {"lr": 0.001, "eps": Infinity}})", "");
    run_.source = "recipe.yaml";
  }

  std::unique_ptr<Tracker> wandb() {
    return make_wandb(run_, std::make_shared<LeavingReporter>(warnings_));
  }
  std::unique_ptr<Tracker> offline() {
    return make_offline_wandb(run_, std::make_shared<LeavingReporter>(warnings_));
  }
  std::unique_ptr<BackgroundTracker> queued() {
    QueueOptions options;
    options.backoff_seconds = 0.01;
    options.longest_backoff_seconds = 0.05;
    auto reporter = std::make_shared<LeavingReporter>(warnings_);
    return std::make_unique<BackgroundTracker>(make_wandb(run_, reporter), options, reporter);
  }
  WandbServedRun only_run() const {
    const auto runs = server_.runs();
    EXPECT_THAT(runs, SizeIs(1));
    return runs.empty() ? WandbServedRun{} : runs.begin()->second;
  }
  std::string kept_id() const { return std::string(trim(read_file(folder_.file("wandb_run_id")))); }

  test::TemporaryDirectory folder_;
  test::Warnings warnings_;
  test::WandbServer server_;
  WandbRun run_;
};

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
  while (server_.runs().empty() || only_run().rows.empty()) std::this_thread::yield();
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
  while (server_.requests().size() < 3) std::this_thread::yield();
  server_.add_faults({{.hangs_up = true},
                      {.status = 429, .body = "{}"},
                      {.status = 200, .body = "<html>a portal</html>"}});
  server_.set_fault(std::nullopt);
  while (server_.runs().empty()) std::this_thread::yield();
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

/// A record of a file, as the wandb package's messages number their fields.
struct Offline {
  std::vector<int> kinds;
  std::vector<std::string> rows;  // "STEP {name: value}"
  std::map<std::string, std::string> summary, config;
  std::map<int, std::string> run;
  std::vector<std::string> tags;
  bool resumes = false;
  int64_t exit_code = -1;
};

Offline read_offline(const std::string& path) {
  Offline file;
  int64_t number = 0;
  for (const std::string& bytes : read_wandb_file(path)) {
    const auto record = test::read_fields(bytes);
    EXPECT_EQ(record.find(1)->second.value, static_cast<uint64_t>(++number));
    const auto& [kind, content] = *std::next(record.begin());
    file.kinds.push_back(kind);
    const auto fields = test::read_fields(content.bytes);
    const auto values_at = [&](int field, int name_field) {
      std::map<std::string, std::string> values;
      for (auto [item, end] = fields.equal_range(field); item != end; ++item) {
        const auto parts = test::read_fields(item->second.bytes);
        values[std::string(parts.find(name_field)->second.bytes)] = parts.find(16)->second.bytes;
      }
      return values;
    };
    if (kind == 2) {
      const auto step = test::read_fields(fields.find(2)->second.bytes);
      Json row = Json::object();
      for (const auto& [name, value] : values_at(1, 2)) row[name] = Json::parse(value, name);
      EXPECT_EQ(row.at("_step").as_int(),
                step.empty() ? 0 : static_cast<int64_t>(step.find(1)->second.value));
      file.rows.push_back(text_of_row(row));
    } else if (kind == 3) {
      file.summary = values_at(1, 2);
    } else if (kind == 17) {
      for (const auto& [field, value] : fields) {
        if (field == 10) {
          file.tags.emplace_back(value.bytes);
        } else if (field == 4) {
          const auto items = test::read_fields(value.bytes);
          for (const auto& [one, item] : items) {
            const auto parts = test::read_fields(item.bytes);
            file.config[std::string(parts.find(1)->second.bytes)] = parts.find(16)->second.bytes;
          }
        } else if (field == 24) {
          file.resumes = value.value != 0;
        } else {
          file.run[field] = value.bytes;
        }
      }
    } else if (kind == 18) {
      file.exit_code = 0;
      if (const auto code = fields.find(1); code != fields.end()) {
        file.exit_code = static_cast<int64_t>(code->second.value);
      }
    }
  }
  return file;
}

class OfflineWandbTest : public WandbTest {
 protected:
  /// The files of the starts of runs, in order.
  std::vector<std::string> files() const {
    return matching_paths(folder_.file("wandb/offline-run-*-*/run-*.wandb"));
  }
};

TEST_F(OfflineWandbTest, AFileHoldsTheRun) {
  run_.settings.entity = "a team";
  run_.settings.group = "a group";
  run_.settings.notes = "why";
  run_.settings.job_type = "train";
  run_.settings.tags = {"a", "b"};
  const auto tracker = offline();
  tracker->deliver(
      Records{record(1), record(R"({"step": 1, "val_loss": Infinity})", "default"), record(3)});
  EXPECT_EQ(tracker->finish(RunEnd::kStopped).outcome, Outcome::kDone);
  ASSERT_THAT(files(), SizeIs(1));
  EXPECT_THAT(files()[0], testing::MatchesRegex(cat(".*/wandb/offline-run-[0-9]*_[0-9]*-",
                                                    kept_id(), "/run-", kept_id(), ".wandb")));
  const Offline file = read_offline(files()[0]);
  EXPECT_THAT(file.kinds, ElementsAre(21, 17, 2, 3, 2, 3, 23, 18));
  EXPECT_EQ(file.run.at(1), kept_id());
  EXPECT_EQ(file.run.at(2), "a team");
  EXPECT_EQ(file.run.at(3), "a project");
  EXPECT_EQ(file.run.at(6), "a group");
  EXPECT_EQ(file.run.at(7), "train");
  EXPECT_EQ(file.run.at(8), "org_model");
  EXPECT_EQ(file.run.at(9), "why");
  EXPECT_NE(file.run.at(13), "");
  EXPECT_THAT(file.tags, ElementsAre("a", "b"));
  EXPECT_EQ(file.config.at("optimizer"), R"({"lr": 0.001, "eps": "Infinity"})");
  EXPECT_FALSE(file.resumes);
  EXPECT_THAT(file.rows, ElementsAre(R"({"_step": 1, "loss": 1.5, "val_loss": Infinity})",
                                     R"({"_step": 3, "loss": 3.5})"));
  EXPECT_EQ(file.summary.at("loss"), "3.5");
  EXPECT_EQ(file.summary.at("val_loss"), "Infinity");
  EXPECT_EQ(file.exit_code, 75);
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(OfflineWandbTest, AContinuedRunGoesOnBehindItsRows) {
  {
    const auto first = offline();
    first->deliver(Records{record(1), record(2), record(3)});  // and is killed: 3 may have had more
  }
  run_.is_resumed = true;
  run_.earlier = [&](int64_t last_step) {
    EXPECT_EQ(last_step, 2);
    return Records{record(R"({"step": 3, "loss": 3.5})")};
  };
  const auto second = offline();
  EXPECT_EQ(second->start().problem, "");
  second->deliver(Records{record(4)});
  second->finish(RunEnd::kFinished);
  ASSERT_THAT(files(), SizeIs(2));
  EXPECT_THAT(read_offline(files()[0]).rows, SizeIs(2));
  const Offline file = read_offline(files()[1]);
  EXPECT_TRUE(file.resumes);
  EXPECT_EQ(file.run.at(1), kept_id());
  EXPECT_THAT(file.rows,
              ElementsAre(R"({"_step": 3, "loss": 3.5})", R"({"_step": 4, "loss": 4.5})"));
  EXPECT_EQ(file.exit_code, 0);
  run_.settings.resume = WandbResume::kNever;
  offline();
  ASSERT_THAT(files(), SizeIs(3));
  const auto of_new_run =
      matching_paths(folder_.file(cat("wandb/*-", kept_id(), "/run-", kept_id(), ".wandb")));
  ASSERT_THAT(of_new_run, SizeIs(1));
  EXPECT_FALSE(read_offline(of_new_run[0]).resumes);
}

TEST_F(OfflineWandbTest, FilesThatCannotBeReadAreTold) {
  run_.settings.run_id = "mine";
  run_.settings.resume = WandbResume::kAllow;
  create_directories(folder_.file("wandb/offline-run-1-mine/run-mine.wandb"));
  const auto tracker = offline();
  tracker->deliver(Records{record(1)});
  EXPECT_EQ(tracker->finish(RunEnd::kFinished).problem, "");
  EXPECT_THAT(warnings_.texts, ElementsAre(HasSubstr("run-mine.wandb: Is a directory")));
}

TEST_F(OfflineWandbTest, TheFolderIsTheRecipes) {
  run_.settings.dir = folder_.file("elsewhere");
  offline();
  EXPECT_THAT(matching_paths(folder_.file("elsewhere/wandb/*/*.wandb")), SizeIs(1));
  write_file_atomic(folder_.file("blocked"), "a file");
  run_.settings.dir = folder_.file("blocked");
  EXPECT_THAT(test::error_of<InputError>([&] { offline(); }), HasSubstr("blocked"));
}

TEST_F(OfflineWandbTest, AFullDiskLosesRecordsAndNoMore) {
  const auto tracker = offline();
  tracker->deliver(Records{record(1), record(2)});
  const uint64_t size = file_size(files()[0]);
  {
    const test::FileSizeLimit limit(size + 10);
    const Delivery refused = tracker->deliver(Records{record(3), record(4)});
    EXPECT_EQ(refused.outcome, Outcome::kRefused);
    EXPECT_EQ(refused.num_records, 2U);
    EXPECT_THAT(refused.problem, HasSubstr("cannot write " + files()[0]));
  }
  EXPECT_EQ(file_size(files()[0]), size);
  tracker->deliver(Records{record(5)});
  tracker->finish(RunEnd::kFinished);
  EXPECT_THAT(read_offline(files()[0]).rows,
              ElementsAre(R"({"_step": 1, "loss": 1.5})", R"({"_step": 4, "loss": 4.5})",
                          R"({"_step": 5, "loss": 5.5})"));
}

/// Checksums bit by bit, from their definition.
uint32_t slow_crc32(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0xEDB88320U : crc >> 1;
  }
  return ~crc;
}

TEST(WandbFileTest, RecordsAreFramedAsTheWandbPackageFramesThem) {
  const test::TemporaryDirectory folder;
  WandbFile file(folder.file("f"));
  file.append({"brain", ""});
  std::string expected(":W&B\xe1\xbe\x00", 7);
  for (const std::string_view record : {"brain", ""}) {
    const std::string checked = cat('\x01', record);
    expected += little_endian(slow_crc32(checked));
    expected += std::string({static_cast<char>(record.size()), '\0'}) + checked;
  }
  EXPECT_EQ(read_file(folder.file("f")), expected);
  EXPECT_THAT(test::error_of<InputError>([&] { WandbFile again(folder.file("f")); }),
              HasSubstr("it is there already"));
}

/// A record goes over the edges of blocks in pieces, and ends before less than a piece's head.
TEST(WandbFileTest, RecordsOfAllSizesComeBack) {
  const test::TemporaryDirectory folder;
  std::vector<std::string> records;
  for (const size_t size :
       {32768 - 7 - 7, 5, 32768 - 7 - 12 - 7, 100'000, 0, 32768 - 7, 65522, 1}) {
    records.emplace_back(size, static_cast<char>('a' + records.size()));
  }
  for (size_t size = 32720; size < 32775; ++size) records.emplace_back(size, 'z');
  WandbFile file(folder.file("f"));
  for (const std::string& record : records) file.append({record});
  EXPECT_EQ(read_wandb_file(folder.file("f")), records);
  // At once, and cut anywhere: whole records only.
  WandbFile other(folder.file("g"));
  other.append(records);
  const std::string bytes = read_file(folder.file("g"));
  EXPECT_EQ(bytes, read_file(folder.file("f")));
  for (const size_t size : {size_t{0}, size_t{6}, size_t{7}, size_t{12}, size_t{32767},
                            size_t{32768}, bytes.size() / 2, bytes.size() - 1}) {
    write_file_atomic(folder.file("cut"), bytes.substr(0, size));
    const auto read = read_wandb_file(folder.file("cut"));
    ASSERT_LT(read.size(), records.size());
    EXPECT_TRUE(std::equal(read.begin(), read.end(), records.begin()));
  }
  std::string broken = bytes;
  broken[200'000] ^= 1;
  write_file_atomic(folder.file("broken"), broken);
  const auto read = read_wandb_file(folder.file("broken"));
  EXPECT_FALSE(read.empty());
  EXPECT_LT(read.size(), records.size());
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
