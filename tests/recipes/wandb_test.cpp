// A run's numbers on a Weights & Biases server, and in files for `wandb sync`, of processes as
// people start them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "recipes/runs.h"
#include "support/wandb_server.h"
#include "trackers/wandb_file.h"

namespace automodel::recipes {
namespace {

using test::HttpReply;
using test::ProgramResult;
using test::WandbServedRun;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using Texts = std::vector<std::string>;

constexpr const char* kKey = "of-this-test";

class WandbRunTest : public testing::Test {
 protected:
  /// A run of six steps that saves after every third.
  ProgramResult run(const Texts& more, Texts variables = {}) const {
    Texts arguments =
        test::smoke_run(place_, {"--step_scheduler.max_steps=6", "--step_scheduler.num_epochs=3",
                                 "--step_scheduler.ckpt_every_steps=3", "--wandb.project=tests"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (!recipe_.empty()) arguments[2] = recipe_;
    variables.push_back("HOME=" + folder_.path());
    variables.push_back("WANDB_BASE_URL=" + server_.address());
    return test::run_program(arguments, variables);
  }
  ProgramResult run_with_key(const Texts& more = {}) const {
    return run(more, {cat("WANDB_API_KEY=", kKey)});
  }
  std::vector<Json> trained() const {
    return test::read_records(path_join(place_, "training.jsonl"));
  }
  Texts tallies() const { return test::tracker_tallies(place_); }
  WandbServedRun only_run() const {
    const auto runs = server_.runs();
    EXPECT_THAT(runs, SizeIs(1));
    return runs.empty() ? WandbServedRun{} : runs.begin()->second;
  }
  static std::vector<int64_t> steps_of(const WandbServedRun& run) {
    std::vector<int64_t> steps;
    for (const Json& row : run.rows) steps.push_back(row.at("_step").as_int());
    return steps;
  }
  Texts offline_files() const {
    return matching_paths(path_join(place_, "wandb/offline-run-*/run-*.wandb"));
  }

  test::TemporaryDirectory folder_;
  std::string place_ = folder_.file("run");
  std::string recipe_;  // "": that of test::smoke_run
  test::WandbServer server_;
};

TEST_F(WandbRunTest, AServerGetsTheRun) {
  server_.demand(kKey);
  // The rows that are trained on are validated on.
  const std::string text = read_file(test::source_file("recipes/smoke/tiny_llama_sft.yaml"));
  const size_t begin = text.find("\ndataset:\n") + std::string("\ndataset:\n").size();
  recipe_ =
      folder_.write("recipe.yaml", cat(text, "\nvalidation_dataset:\n",
                                       text.substr(begin, text.find("\n\n", begin) - begin), "\n"));
  const ProgramResult result = run_with_key(
      {"--wandb.entity=team", "--wandb.group=a group", "--wandb.notes=what for",
       "--wandb.job_type=train", "--wandb.tags=['a', 'b']", "--step_scheduler.val_every_steps=3"});
  ASSERT_EQ(result.status, 0) << result.err;
  const WandbServedRun made = only_run();
  EXPECT_EQ(made.project, "tests");
  EXPECT_EQ(made.entity, "team");
  EXPECT_EQ(made.variables.at("groupName").as_string(), "a group");
  EXPECT_EQ(made.variables.at("notes").as_string(), "what for");
  EXPECT_EQ(made.variables.at("jobType").as_string(), "train");
  EXPECT_EQ(made.variables.at("tags").dump(), R"(["a", "b"])");
  EXPECT_EQ(made.variables.at("displayName").as_string(), "data_tiny_llama");
  const Json config = Json::parse(made.variables.at("config").as_string(), "config");
  EXPECT_EQ(config.at("step_scheduler").at("value").at("max_steps").as_int(), 6);
  EXPECT_EQ(made.exit_code, 0);
  const std::string id = server_.runs().begin()->first;
  EXPECT_EQ(read_file(path_join(place_, "wandb_run_id")), id + "\n");
  EXPECT_THAT(result.out, HasSubstr(cat("W&B: run data_tiny_llama at ", server_.address(),
                                        "/team/tests/runs/", id)));
  // Every number of the logs, those of a step in one row.
  std::map<int64_t, Json> rows;
  for (const Json& row : made.rows) rows[row.at("_step").as_int()] = row;
  ASSERT_THAT(rows, SizeIs(6));
  for (const Json& record : trained()) {
    const Json& row = rows.at(record.at("step").as_int());
    for (const char* name : {"loss", "grad_norm", "lr", "mem", "tps"}) {
      EXPECT_EQ(row.at(name).as_double(), record.at(name).as_double()) << name;
    }
  }
  const auto validated = test::read_records(path_join(place_, "validation.jsonl"));
  ASSERT_THAT(validated, SizeIs(2));
  for (const Json& record : validated) {
    const Json& row = rows.at(record.at("step").as_int());
    EXPECT_EQ(row.at("val_loss").as_double(), record.at("val_loss").as_double());
    EXPECT_EQ(row.at("val_lr").as_double(), record.at("lr").as_double());
  }
  EXPECT_EQ(made.summary.at("loss").as_double(), trained().back().at("loss").as_double());
  EXPECT_THAT(tallies(), ElementsAre("W&B sent 8 lost 0"));
  // The key is sent and shown nowhere.
  EXPECT_THAT(result.out + result.err, Not(HasSubstr(kKey)));
  for (const char* file : {"run.json", "events.jsonl", "wandb_run_id"}) {
    EXPECT_THAT(read_file(path_join(place_, file)), Not(HasSubstr(kKey)));
  }
}

TEST_F(WandbRunTest, ItHearsOfTheStepsThatItShould) {
  ASSERT_EQ(run_with_key({"--step_scheduler.log_remote_every_steps=4", "--wandb.id=mine",
                          "--wandb.name=first"})
                .status,
            0);
  EXPECT_THAT(steps_of(server_.runs().at("mine")), ElementsAre(0, 4));
  EXPECT_EQ(only_run().variables.at("displayName").as_string(), "first");
}

TEST_F(WandbRunTest, AContinuedRunGoesOnInItsRun) {
  ASSERT_EQ(run_with_key().status, 0);
  ASSERT_EQ(run_with_key({"--step_scheduler.max_steps=8"}).status, 0);
  EXPECT_THAT(steps_of(only_run()), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  ASSERT_EQ(run_with_key({"--step_scheduler.max_steps=9", "--wandb.resume=never"}).status, 0);
  const auto runs = server_.runs();
  ASSERT_THAT(runs, SizeIs(2));
  const std::string id(trim(read_file(path_join(place_, "wandb_run_id"))));
  EXPECT_THAT(steps_of(runs.at(id)), ElementsAre(8));
}

/// What a start that was killed has not sent is in its log.
TEST_F(WandbRunTest, StepsThatWereNotSentFollow) {
  ASSERT_EQ(run({}).status, 0);
  remove_tree(path_join(place_, "wandb"));
  ASSERT_EQ(run_with_key({"--step_scheduler.max_steps=8"}).status, 0);
  EXPECT_THAT(steps_of(only_run()), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  const std::vector<Json> records = trained();
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(only_run().rows.at(i).at("loss").as_double(), records[i].at("loss").as_double());
  }
}

/// The records are the same as without a tracker, whatever the server does.
TEST_F(WandbRunTest, AServerThatFailsChangesNothing) {
  const HttpReply nonsense{.status = 200, .body = "<html>"};
  const HttpReply broken{.status = 500, .body = ""};
  for (const HttpReply& fault : {nonsense, broken}) {
    remove_tree(place_);
    server_.set_fault(fault);
    const ProgramResult result = run_with_key();
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(trained(), SizeIs(6));
    EXPECT_THAT(result.err, HasSubstr("W&B knows nothing of this run: " + server_.address()));
    EXPECT_THAT(tallies(), ElementsAre("W&B sent 0 lost 6"));
  }
}

TEST_F(WandbRunTest, AFailedRunIsAFailedRunThere) {
  EXPECT_EQ(run_with_key({"--optimizer.lr=1e30"}).status, 5);
  EXPECT_EQ(only_run().exit_code, 1);
}

TEST_F(WandbRunTest, WithoutAKeyTheRunIsKeptInAFile) {
  const ProgramResult result = run({});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("there is no API key: the run is kept in a file for `wandb "
                                    "sync`; set WANDB_API_KEY, or a line `machine 127.0.0.1:"));
  ASSERT_THAT(offline_files(), SizeIs(1));
  EXPECT_THAT(result.out, HasSubstr(cat("W&B: offline, `wandb sync ",
                                        parent_path(offline_files()[0]), "` sends the run")));
  // Head, run, a row and a summary for each step, the end.
  EXPECT_THAT(trackers::read_wandb_file(offline_files()[0]), SizeIs(2 + 2 * 6 + 1));
  EXPECT_THAT(tallies(), ElementsAre("W&B sent 6 lost 0"));
  EXPECT_THAT(server_.requests(), IsEmpty());
  const ProgramResult strict = run({"--wandb.force=true"});
  EXPECT_EQ(strict.status, 2);
  EXPECT_THAT(strict.err, HasSubstr("there is no API key, and force wants one: set WANDB_API_KEY"));
}

TEST_F(WandbRunTest, OfflineIsAChoice) {
  const std::string elsewhere = folder_.file("elsewhere");
  const ProgramResult result = run({"--wandb.mode=offline", "--wandb.dir=" + elsewhere},
                                   {cat("WANDB_API_KEY=", kKey), "WANDB_MODE=online"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("API key")));
  EXPECT_THAT(matching_paths(path_join(elsewhere, "wandb/offline-run-*/*.wandb")), SizeIs(1));
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(WandbRunTest, ItCanBeOff) {
  for (const char* off : {"--wandb.enable=false", "--wandb.mode=disabled"}) {
    ASSERT_EQ(run_with_key({off}).status, 0);
  }
  ASSERT_EQ(run({}, {cat("WANDB_API_KEY=", kKey), "WANDB_MODE=disabled"}).status, 0);
  EXPECT_THAT(server_.requests(), IsEmpty());
  EXPECT_FALSE(path_exists(path_join(place_, "wandb")));
}

/// Of two ranks one tracks.
TEST_F(WandbRunTest, OneRankTracks) {
  ASSERT_EQ(run_with_key({"--nproc-per-node", "2"}).status, 0);
  EXPECT_THAT(steps_of(only_run()), ElementsAre(0, 1, 2, 3, 4, 5));
}

}  // namespace
}  // namespace automodel::recipes
