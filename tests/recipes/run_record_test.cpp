// What a run leaves in run.json and events.jsonl, of processes as people start them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "comm/ranks.h"
#include "recipes/run/run_record.h"
#include "recipes/saving_runs.h"

namespace automodel::recipes {
namespace {

using test::Program;
using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;
using testing::HasSubstr;
using Texts = std::vector<std::string>;

std::vector<Json> events_of(const std::string& place) {
  return read_records(path_join(place, "events.jsonl"));
}

/// "save 1": the names of a run's events, with their steps.
Texts names_of(const std::vector<Json>& events) {
  Texts names;
  for (const Json& event : events) {
    const Json* step = event.find("step");
    const std::string name = event.at("event").as_string();
    names.push_back(step == nullptr ? name : cat(name, " ", step->as_int()));
  }
  return names;
}

/// What happens to a run, without what it measures of itself.
Texts happenings(const std::vector<Json>& events) {
  Texts names = names_of(events);
  std::erase_if(names, [](const std::string& name) {
    return name == "warning" || name.starts_with("memory ") || name.starts_with("data ");
  });
  return names;
}

std::vector<Json> events_named(const std::string& place, std::string_view name) {
  std::vector<Json> events = events_of(place);
  std::erase_if(events, [&](const Json& event) { return event.at("event").as_string() != name; });
  return events;
}

int64_t bytes_of(const Json& parts, std::string_view name) {
  for (const Json& part : parts.as_array()) {
    if (part.at("name").as_string() == name) return part.at("bytes").as_int();
  }
  return -1;
}

class RunRecordTest : public testing::Test {
 protected:
  std::vector<std::string> saving_run(const test::Spread& spread = {}) const {
    return test::saving_run(recipe_, place_, spread);
  }

  TemporaryDirectory folder_;
  std::string recipe_ = test::write_saving_recipe(folder_);
  std::string place_ = folder_.file("run");
};

TEST_F(RunRecordTest, ARunSaysWhatItIs) {
  auto arguments = saving_run({2, {}});
  arguments.insert(arguments.end(), {"--wandb.enable=false", "--wandb.api_key=abcdef"});
  const ProgramResult run = test::run_program(arguments);
  ASSERT_EQ(run.status, 0) << run.err;
  const Json record = Json::parse_file(path_join(place_, "run.json"));
  EXPECT_EQ(record.at("format").as_int(), 1);
  EXPECT_FALSE(record.at("version").as_string().empty());
  EXPECT_EQ(record.at("recipe").as_string(), recipe_);
  EXPECT_EQ(record.at("num_ranks").as_int(), 2);
  EXPECT_EQ(record.at("max_steps").as_int(), 4);
  EXPECT_EQ(record.at("mesh").at("dp_shard").as_int(), 2);
  EXPECT_EQ(record.at("model").at("architecture").as_string(), "LlamaForCausalLM");
  EXPECT_GT(record.at("model").at("num_parameters").as_int(), 0);
  EXPECT_GT(record.at("machine").at("memory_bytes").as_int(), 0);
  EXPECT_GT(record.at("data").at("batches_per_epoch_of_a_rank").as_int(), 0);
  EXPECT_EQ(record.at("data").at("validation_batches_of_a_rank").as_object().size(), 1U);
  const Json& command = record.at("command");
  EXPECT_EQ(command.as_array().at(1).as_string(), "run");
  EXPECT_EQ(command.as_array().back().as_string(), "--wandb.api_key=******");
  const auto value_of = [&](const char* key) {
    const Json& entry = record.at("values").at(key);
    return cat(entry.at("value").dump(), " ", entry.at("origin").as_string());
  };
  EXPECT_EQ(value_of("step_scheduler.max_steps"), "4 command line");
  EXPECT_EQ(value_of("wandb.api_key"), "\"******\" command line");
  EXPECT_THAT(value_of("checkpoint.save_consolidated"), HasSubstr(cat(" ", recipe_, ":")));
  EXPECT_EQ(value_of("checkpoint.model_save_format"), "\"safetensors\" default");
  EXPECT_EQ(value_of("clip_grad_norm.norm_type"), "2.0 default");
}

TEST_F(RunRecordTest, EventsTellOfSavesValidationsAndResuming) {
  const ProgramResult whole = test::run_program(saving_run());
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(happenings(events_of(place_)), (Texts{"start", "load 0", "validation 1", "save 1",
                                                  "validation 3", "save 3", "end 4"}));
  const Json record = Json::parse_file(path_join(place_, "run.json"));
  auto longer = saving_run();
  longer.emplace_back("--step_scheduler.max_steps=6");
  const ProgramResult resumed = test::run_program(longer);
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(happenings(events_of(place_)),
            (Texts{"start", "load 0", "validation 1", "save 1", "validation 3", "save 3", "end 4",
                   "start", "resume 4", "validation 5", "save 5", "end 6"}));
  const Json again = Json::parse_file(path_join(place_, "run.json"));
  EXPECT_NE(again.at("id").as_string(), record.at("id").as_string());
  EXPECT_EQ(again.at("max_steps").as_int(), 6);
  for (const std::string& name : list_directory(place_)) {
    EXPECT_THAT(name, testing::Not(HasSubstr(".tmp-")));
  }
}

/// A run that is started again and again leaves no endless number of files.
TEST(EarlierRecordsTest, TheFirstAndTheNewestStay) {
  const TemporaryDirectory folder;
  SilentReporter nobody;
  for (int64_t start = 1; start <= 40; ++start) {
    folder.write("run.json", cat("{\"start\": ", start, "}"));
    const auto earlier = keep_earlier_record(folder.path(), nobody);
    ASSERT_TRUE(earlier.has_value());
    EXPECT_EQ(earlier->at("start").as_int(), start);
  }
  const std::vector<std::string> kept = list_directory(folder.path());
  EXPECT_EQ(kept.size(), 31U);
  EXPECT_TRUE(path_exists(folder.file("run.1.json")));
  EXPECT_FALSE(path_exists(folder.file("run.10.json")));
  EXPECT_EQ(Json::parse_file(folder.file("run.11.json")).at("start").as_int(), 11);
  EXPECT_EQ(Json::parse_file(folder.file("run.40.json")).at("start").as_int(), 40);
}

TEST_F(RunRecordTest, ARunThatContinuesSaysWhatIsOtherThanBefore) {
  ASSERT_EQ(test::run_program(saving_run()).status, 0);
  const Json first = Json::parse_file(path_join(place_, "run.json"));
  auto longer = saving_run();
  longer.insert(longer.end(), {"--step_scheduler.max_steps=6", "--optimizer.lr=0.002"});
  ASSERT_EQ(test::run_program(longer).status, 0);
  const Json second = Json::parse_file(path_join(place_, "run.json"));
  EXPECT_EQ(Json::parse_file(path_join(place_, "run.1.json")), first);
  const std::vector<Json> starts = events_named(place_, "start");
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[0].at("id"), first.at("id"));
  EXPECT_FALSE(starts[0].contains("changed"));
  EXPECT_EQ(starts[1].at("id"), second.at("id"));
  EXPECT_EQ(starts[1].at("version"), second.at("version"));
  EXPECT_EQ(starts[1].at("command").as_array().back().as_string(), "--optimizer.lr=0.002");
  EXPECT_EQ(starts[1].at("changed").dump(),
            R"([{"key": "step_scheduler.max_steps", "from": 4, "to": 6}, )"
            R"({"key": "optimizer.lr", "from": 0.001, "to": 0.002}])");
  // A third one keeps the second; one that begins anew sets all aside.
  longer.emplace_back("--step_scheduler.max_steps=8");
  ASSERT_EQ(test::run_program(longer).status, 0);
  EXPECT_EQ(Json::parse_file(path_join(place_, "run.2.json")), second);
  for (const std::string& checkpoint : test::checkpoints_in(place_, true)) remove_tree(checkpoint);
  ASSERT_EQ(test::run_program(saving_run()).status, 0);
  EXPECT_EQ(Json::parse_file(path_join(place_, "run.1.json.old")), first);
  EXPECT_TRUE(path_exists(path_join(place_, "run.3.json.old")));
  EXPECT_FALSE(path_exists(path_join(place_, "run.1.json")));
  EXPECT_FALSE(events_named(place_, "start").at(0).contains("changed"));
}

TEST_F(RunRecordTest, ThePlanIsInTheRecordAndWhatIsHeldIsWhatWasPlanned) {
  for (const test::Spread& spread : {test::Spread{1, {}}, test::sharded(2)}) {
    remove_tree(place_);
    const ProgramResult run = test::run_program(saving_run(spread));
    ASSERT_EQ(run.status, 0) << run.err;
    const Json plan = Json::parse_file(path_join(place_, "run.json")).at("plan");
    for (const char* key : {"loading_bytes", "step_bytes", "saving_bytes", "host_bytes"}) {
      EXPECT_LE(plan.at(key).as_int(), plan.at("most_bytes").as_int()) << key;
    }
    int64_t planned = 0;
    for (const Json& part : plan.at("parts").as_array()) planned += part.at("bytes").as_int();
    EXPECT_EQ(planned, plan.at("step_bytes").as_int());
    EXPECT_TRUE(plan.at("not_counted").is_array());
    EXPECT_GT(plan.at("program_bytes").as_int(), int64_t{30} << 20);
    EXPECT_LT(plan.at("program_bytes").as_int(), int64_t{500} << 20);
    const std::vector<Json> memory = events_named(place_, "memory");
    EXPECT_EQ(names_of(memory), (Texts{"memory 0", "memory 1", "memory 3", "memory 4"}));
    for (const Json& event : memory) {
      const Json& parts = event.at("parts");
      for (const char* name : {"parameters", "optimizer state"}) {
        EXPECT_EQ(bytes_of(parts, name), bytes_of(plan.at("parts"), name)) << name;
      }
      EXPECT_GT(bytes_of(parts, "gradients, activations and the rest"), 0);
      int64_t sum = 0;
      for (const Json& part : parts.as_array()) sum += part.at("bytes").as_int();
      EXPECT_EQ(sum, event.at("peak_bytes").as_int());
    }
  }
}

TEST_F(RunRecordTest, AStagesMemoryIsPlannedAsOnePartWithTheBubble) {
  const ProgramResult run = test::run_program(
      {test::automodel_binary(), "run", test::source_file("recipes/smoke/tiny_qwen3_moe.yaml"),
       cat("--checkpoint.checkpoint_dir=", place_), "--nproc-per-node=2", "--distributed.pp_size=2",
       "--distributed.pipeline.pp_schedule=1f1b", "--distributed.pipeline.pp_microbatch_size=1"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json plan = Json::parse_file(path_join(place_, "run.json")).at("plan");
  EXPECT_GT(plan.at("pipeline_bubble").as_double(), 0);
  EXPECT_LT(plan.at("pipeline_bubble").as_double(), 1);
  constexpr const char* kState = "parameters, gradients and optimizer state";
  EXPECT_GT(bytes_of(plan.at("parts"), kState), 0);
  const std::vector<Json> memory = events_named(place_, "memory");
  EXPECT_GT(bytes_of(memory.at(0).at("parts"), "parameters and optimizer state"), 0);
}

TEST_F(RunRecordTest, DataAreCountedAtSavesValidationsAndTheEnd) {
  auto arguments = saving_run({2, {}});
  arguments.emplace_back("--step_scheduler.max_steps=5");
  const ProgramResult run = test::run_program(arguments);
  ASSERT_EQ(run.status, 0) << run.err;
  const std::vector<Json> data = events_named(place_, "data");
  EXPECT_EQ(names_of(data), (Texts{"data 1", "data 3", "data 4"}));
  // Half of each step's four rows.
  EXPECT_EQ(data.at(0).at("num_sequences").as_int(), 4);
  EXPECT_EQ(data.at(2).at("num_sequences").as_int(), 10);
  EXPECT_EQ(data.at(2).at("num_documents").as_int(), 10);
  int64_t num_lengths = 0;
  for (const Json& bucket : data.at(2).at("lengths").as_array()) {
    num_lengths += bucket.as_array().at(1).as_int();
  }
  EXPECT_EQ(num_lengths, 10);
  EXPECT_GT(data.at(2).at("num_label_tokens").as_int(), 0);
  EXPECT_GT(data.at(2).at("num_tokens").as_int(), data.at(2).at("num_label_tokens").as_int());
  const Json record = Json::parse_file(path_join(place_, "run.json"));
  EXPECT_GT(record.at("data").at("prepared").at("num_samples").as_int(), 0);
}

TEST_F(RunRecordTest, ARecordOfAStepSaysWhereItsTimeWent) {
  for (const int num_ranks : {1, 2}) {
    remove_tree(place_);
    ASSERT_EQ(test::run_program(saving_run({num_ranks, {}})).status, 0);
    for (const Json& record : read_records(path_join(place_, "training.jsonl"))) {
      const auto seconds = [&](const char* key) { return record.at(key).as_double(); };
      const double all =
          static_cast<double>(record.at("num_tokens_per_step").as_int()) / seconds("tps");
      EXPECT_GT(seconds("forward_backward_seconds"), 0);
      EXPECT_GT(seconds("update_seconds"), 0);
      EXPECT_GE(seconds("data_seconds"), 0);
      const double sum =
          seconds("forward_backward_seconds") + seconds("update_seconds") + seconds("data_seconds");
      EXPECT_LT(sum, all);
      EXPECT_GT(sum, 0.2 * all);  // the rest: counts, signals, records
      if (num_ranks == 1) {
        EXPECT_EQ(seconds("wait_seconds"), 0);
      } else {
        EXPECT_GT(seconds("wait_seconds"), 0);
        EXPECT_LT(seconds("wait_seconds"), all);
      }
    }
  }
}

TEST_F(RunRecordTest, AWarningIsAnEvent) {
  auto arguments = saving_run();
  arguments.emplace_back("--step_scheduler.log_remote_every_steps=2");
  ASSERT_EQ(test::run_program(arguments).status, 0);
  Texts warnings;
  for (const Json& event : events_of(place_)) {
    if (event.at("event").as_string() == "warning")
      warnings.push_back(event.at("text").as_string());
  }
  EXPECT_THAT(warnings, testing::Contains(HasSubstr("'log_remote_every_steps' has no effect")));
}

TEST_F(RunRecordTest, APreemptedRunSaysSo) {
  const test::FailingCalls counted{.folder = place_, .log = folder_.file("calls.log")};
  ASSERT_EQ(test::run_program(saving_run(), counted.environment()).status, 0);
  const auto writes =
      test::numbers_of(test::read_calls(counted.log), 0, "write", "/training.jsonl");
  remove_tree(place_);
  const test::FailingCalls failing{
      .folder = place_, .rank = 0, .at = writes.at(0), .action = "signal:15"};
  EXPECT_EQ(test::run_program(saving_run(), failing.environment()).status, 75);
  const std::vector<Json> events = events_of(place_);
  EXPECT_EQ(names_of(events).back(), "preempted 1");
  EXPECT_EQ(events.back().at("signal").as_string(), "SIGTERM");
}

TEST_F(RunRecordTest, AKilledRankIsNamedByWhoStartedIt) {
  Program program(
      test::on(test::sharded(2), test::smoke_run(place_, {"--step_scheduler.max_steps=1000000",
                                                          "--step_scheduler.num_epochs=1000000",
                                                          "--checkpoint.enabled=false"})));
  test::wait_for_records(path_join(place_, "training.jsonl"));
  const std::vector<pid_t> ranks = test::children_of(program.pid());
  ASSERT_EQ(ranks.size(), 2U);
  ::kill(ranks[1], SIGKILL);
  EXPECT_EQ(program.wait().status, 128 + SIGKILL);
  const Json failure = events_of(place_).back();
  EXPECT_EQ(failure.at("event").as_string(), "failure");
  EXPECT_EQ(failure.at("rank").as_int(), 1);
  EXPECT_EQ(failure.at("status").as_int(), 128 + SIGKILL);
  EXPECT_EQ(failure.at("text").as_string(),
            cat("rank 1 (pid ", ranks[1], ") was killed by signal 9 (Killed)"));
}

TEST_F(RunRecordTest, ASignalThatEndsARunIsToldOf) {
  const std::vector<std::string> endless = {"--step_scheduler.max_steps=1000000",
                                            "--step_scheduler.num_epochs=1000000",
                                            "--checkpoint.enabled=false"};
  const std::string text =
      "stopped by signal 2 (Interrupt); nothing was saved (checkpoint.enabled: false)";
  for (const int num_ranks : {1, 2}) {
    auto arguments = test::smoke_run(place_, endless);
    if (num_ranks > 1) arguments = test::on(test::sharded(num_ranks), arguments);
    Program program(arguments);
    test::wait_for_records(path_join(place_, "training.jsonl"));
    ::kill(program.pid(), SIGINT);
    const ProgramResult ended = program.wait();
    EXPECT_EQ(ended.status, 128 + SIGINT);
    EXPECT_THAT(ended.err, HasSubstr(text));
    const Json failure = events_of(place_).back();
    EXPECT_EQ(failure.at("event").as_string(), "failure");
    EXPECT_EQ(failure.at("status").as_int(), 128 + SIGINT);
    EXPECT_EQ(failure.at("text").as_string(), text);
    remove_tree(place_);
  }
  // nohup and shells that start programs in the background have signals ignored.
  std::vector<std::string> ignoring = {"/bin/bash", "-c", "trap '' INT; exec \"$@\"", "bash"};
  for (const std::string& argument : test::smoke_run(place_, endless)) ignoring.push_back(argument);
  Program program(ignoring);
  test::wait_for_records(path_join(place_, "training.jsonl"));
  ::kill(program.pid(), SIGINT);
  const size_t num_records = test::read_records(path_join(place_, "training.jsonl")).size();
  while (test::read_records(path_join(place_, "training.jsonl")).size() < num_records + 5) {
    ASSERT_EQ(::kill(program.pid(), 0), 0);
  }
  ::kill(program.pid(), SIGKILL);
  EXPECT_EQ(program.wait().status, 128 + SIGKILL);
}

TEST_F(RunRecordTest, AFailureOfOneProcessIsAnEvent) {
  auto arguments = saving_run();
  arguments.emplace_back("--optimizer.lr=1e30");
  arguments.emplace_back("--lr_scheduler.lr_warmup_steps=0");
  EXPECT_EQ(test::run_program(arguments).status, 5);
  const Json failure = events_of(place_).back();
  EXPECT_EQ(failure.at("event").as_string(), "failure");
  EXPECT_EQ(failure.at("status").as_int(), 5);
  EXPECT_THAT(failure.at("text").as_string(), HasSubstr("nothing was updated"));
}

TEST_F(RunRecordTest, StepsThatAreNotFiniteAndGoOnAreEvents) {
  auto arguments = saving_run();
  arguments.insert(arguments.end(), {"--optimizer.lr=1e30", "--lr_scheduler.lr_warmup_steps=0",
                                     "--stop_on_non_finite=false"});
  const ProgramResult run = test::run_program(arguments);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(names_of(events_of(place_)), testing::Contains("non_finite 3"));
}

TEST_F(RunRecordTest, ARanksFailureUnderAnotherLauncherIsAnEvent) {
  const std::string port = cat("MASTER_PORT=", comm::free_port());
  std::vector<std::unique_ptr<Program>> ranks;
  for (const char* rank : {"0", "1"}) {
    ranks.push_back(std::make_unique<Program>(
        test::smoke_run(
            place_, {"--step_scheduler.max_steps=1000000", "--step_scheduler.num_epochs=1000000",
                     "--checkpoint.enabled=false"}),
        Texts{cat("RANK=", rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", port,
              "AUTOMODEL_RUN_SECRET=of this test"}));
  }
  test::wait_for_records(path_join(place_, "training.jsonl"));
  ::kill(ranks[1]->pid(), SIGKILL);
  EXPECT_EQ(ranks[0]->wait().status, 4);
  ranks[1]->wait();
  const Json failure = events_of(place_).back();
  EXPECT_EQ(failure.at("event").as_string(), "failure");
  EXPECT_EQ(failure.at("rank").as_int(), 1);
  EXPECT_THAT(failure.at("text").as_string(), HasSubstr("rank 1 vanished during "));
}

TEST_F(RunRecordTest, ASecondRunOfAFolderLeavesTheFirstOnesRecordsAlone) {
  Program first(test::smoke_run(
      place_, {"--step_scheduler.max_steps=1000000", "--step_scheduler.num_epochs=1000000",
               "--checkpoint.enabled=false"}));
  test::wait_for_records(path_join(place_, "training.jsonl"));
  const auto id = [&] { return Json::parse_file(path_join(place_, "run.json")).at("id"); };
  const Json first_id = id();
  EXPECT_EQ(test::run_program(test::smoke_run(place_)).status, 3);
  EXPECT_EQ(id(), first_id);
  EXPECT_FALSE(path_exists(path_join(place_, "run.1.json")));
  // The first run goes on, and may have added events of its own.
  int num_starts = 0;
  for (const Json& event : test::read_records(path_join(place_, "events.jsonl"))) {
    EXPECT_NE(event.at("event"), Json("failure")) << event.dump();
    if (event.at("event") == Json("start")) ++num_starts;
  }
  EXPECT_EQ(num_starts, 1);
  ::kill(first.pid(), SIGKILL);
  first.wait();
}

TEST_F(RunRecordTest, FilesThatCannotBeWrittenAreAWarningAndTheRunGoesOn) {
  std::filesystem::create_directories(path_join(place_, "run.json"));  // in the way
  std::filesystem::create_directories(path_join(place_, "events.jsonl.old/in the way"));
  write_file_atomic(path_join(place_, "events.jsonl"), "{}\n");
  const ProgramResult run = test::run_program(saving_run());
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("the run is not described: cannot write "));
  EXPECT_THAT(run.err, HasSubstr("events of the run are lost: cannot rename "));
  EXPECT_EQ(test::lines_of(path_join(place_, "training.jsonl")).size(), 4U);
}

TEST(ChangesTest, WhatARunSaysOfThemIsALineWithoutDefaultsThatCameOrWent) {
  const auto record = [](const std::string& values) {
    return Json::parse(cat("{\"values\": {", values, "}}"), "run.json");
  };
  const std::string long_text(80, 'x');
  const Json before = record(
      R"("seed": {"value": 1, "origin": "r.yaml:1"}, "gone": {"value": 2, "origin": "r.yaml"},)"
      R"("old": {"value": 3, "origin": "default"}, "text": {"value": "a\nb", "origin": ""},)" +
      cat("\"long\": {\"value\": \"", long_text, "1\", \"origin\": \"r.yaml\"}"));
  const Json now = record(
      R"("seed": {"value": 7, "origin": "default"}, "new": {"value": 4, "origin": "default"},)"
      R"("text": {"value": "c", "origin": ""},)" +
      cat("\"long\": {\"value\": \"", long_text, "2\", \"origin\": \"r.yaml\"}"));
  EXPECT_EQ(text_of_changes(changed_values(before, now)),
            "changed since the last run here: seed 1 -> 7, text \"a\\nb\" -> c, long (another "
            "text), gone 2 -> none");
  EXPECT_EQ(text_of_changes(changed_values(now, now)), "");
}

}  // namespace
}  // namespace automodel::recipes
