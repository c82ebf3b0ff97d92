// Runs that ask the model for tool calls when they validate: the quickstart of agents' traces.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "core/clock.h"
#include "core/file.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;
using testing::HasSubstr;

ProgramResult calling(const char* command, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      test::automodel_binary(), command,
      test::source_file("recipes/llm_finetune/agent_traces_quickstart.yaml")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return test::run_program(arguments);
}

/// The run's records of validation.
std::vector<Json> validations(const std::string& folder, std::vector<std::string> more) {
  more.push_back(cat("--checkpoint.checkpoint_dir=", folder));
  const ProgramResult run = calling("run", more);
  EXPECT_EQ(run.status, 0) << run.err;
  return read_records(path_join(folder, "validation.jsonl"));
}

double metric(const Json& record, const std::string& name) {
  return record.at("tool_call/" + name).as_double();
}

/// The metrics of a record as text, without the loss.
std::string metrics_of(const Json& record) {
  Json found = Json::object();
  for (const auto& [name, value] : record.as_object()) {
    if (name.starts_with("tool_call/")) found[name] = value;
  }
  return found.dump();
}

TEST(ToolCallRunTest, AModelLearnsToCallAndScoresTheSameOnEveryMesh) {
  const TemporaryDirectory folder;
  const std::vector<Json> records =
      validations(folder.file("run"), {"--step_scheduler.val_every_steps=20"});
  ASSERT_GE(records.size(), 2U);
  const Json& last = records.back();
  EXPECT_GE(metric(last, "name_correct"), 0.9);
  EXPECT_GE(metric(last, "args_json_valid"), 0.9);
  EXPECT_GT(metric(last, "_count"), 8);
  EXPECT_LE(metric(last, "args_exact_match"), metric(last, "args_field_recall"));

  // A turn's end token ends an answer, though the tokenizer names another.
  const ProgramResult answer = test::run_program(
      {test::automodel_binary(), "generate", folder.file("run"),
       "There are 29 coins, and 56 more come. How many are there?", "--max-new-tokens=60"});
  EXPECT_THAT(answer.out, testing::MatchesRegex("<tool_call>[^\n]*</tool_call>\n")) << answer.err;

  // The trained model, asked again after a step that changes nothing to speak of.
  const std::vector<std::string> trained = {
      "--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
      "--model.config=none",
      cat("--model.pretrained_model_name_or_path=", folder.file("run/LATEST/model/consolidated")),
      "--step_scheduler.max_steps=1",
      "--optimizer.lr=1e-12",
      "--lr_scheduler=none",
      "--step_scheduler.val_every_steps=1",
      "--checkpoint.enabled=false"};
  const auto asked = [&](const char* name, const test::Spread& spread) {
    const std::vector<Json> found = validations(folder.file(name), test::on(spread, trained));
    return found.empty() ? "nothing" : metrics_of(found.back());
  };
  const std::string one = asked("one", {});
  EXPECT_EQ(one, metrics_of(last));
  EXPECT_THAT(asked("cut", {1, {"--tool_call_eval.max_new_tokens=2"}}),
              HasSubstr(R"("tool_call/has_call": 0.0)"));
  EXPECT_EQ(
      asked("ddp", {3, {"--distributed.strategy=ddp", "--step_scheduler.global_batch_size=24"}}),
      one);
  EXPECT_EQ(asked("fsdp2", test::sharded(2, {"--tool_call_eval.run_on_fsdp2=true"})), one);
  EXPECT_EQ(asked("megatron", {2, {"--distributed.strategy=megatron_fsdp"}}), one);
  // Eight prompts are asked at once; the last two expect another function.
  std::string rows;
  for (int i = 0; i < 10; ++i) {
    const char* name = i < 8 ? "add" : "subtract";
    rows += cat(R"({"tools": [{"type": "function", "function": {"name": "add", "description": )",
                R"("The sum of two numbers", "parameters": {"type": "object", "properties": )",
                R"({"a": {"type": "integer"}, "b": {"type": "integer"}}}}}], "messages": [)",
                R"({"role": "user", "content": "There are )", 20 + i,
                R"( coins, and 56 more come. How many are there?"}, {"role": "tool_call", )",
                R"("content": "{\"name\": \")", name,
                R"(\", \"arguments\": {\"a\": 1, \"b\": 2}}"}]})", "\n");
  }
  folder.write("names.jsonl", rows);
  EXPECT_THAT(asked("names", {1,
                              {cat("--tool_call_eval.path=", folder.file("names.jsonl")),
                               "--tool_call_eval.limit_dataset_samples=none"}}),
              HasSubstr(R"("tool_call/name_correct": 0.8)"));
  EXPECT_EQ(asked("left_out", test::sharded(2)), R"({"tool_call/_disabled_fsdp2": 1.0})");
  // Drawn tokens are the same on every mesh too, and of the temperature that the folder says.
  write_file_atomic(
      path_join(folder.file("run/LATEST/model/consolidated"), "generation_config.json"),
      R"({"temperature": 0.7, "top_k": 0})");
  const std::vector<std::string> draws = {"--tool_call_eval.do_sample=true"};
  const std::string drawn = asked("drawn", {1, draws});
  EXPECT_NE(drawn, one);
  EXPECT_EQ(
      asked("drawn_ddp",
            {3, {"--distributed.strategy=ddp", draws[0], "--step_scheduler.global_batch_size=24"}}),
      drawn);
  EXPECT_EQ(asked("not_drawn", {}), one);
  write_file_atomic(
      path_join(folder.file("run/LATEST/model/consolidated"), "generation_config.json"),
      R"({"temperature": 0.0})");
  EXPECT_EQ(asked("not_drawn_at_all", {}), one);  // what only draws read is not read
  std::vector<std::string> drawing = trained;
  drawing.push_back(draws[0]);
  EXPECT_THAT(calling("check", drawing).out, HasSubstr("temperature is 0, right is a number"));
}

TEST(ToolCallRunTest, PromptsThatAreTooLongAreSkippedAndCounted) {
  const TemporaryDirectory folder;
  const ProgramResult run =
      calling("run", {"--step_scheduler.max_steps=1", "--lr_scheduler=none",
                      "--step_scheduler.val_every_steps=1", "--tool_call_eval.max_prompt_tokens=60",
                      "--tool_call_eval.max_new_tokens=2", "--tool_call_eval.metric_prefix=calls/",
                      cat("--checkpoint.checkpoint_dir=", folder.file("run"))});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out + run.err,
              HasSubstr(" | calls/name_correct 0.0000 | calls/args_exact_match 0.0000 | lr "));
  EXPECT_THAT(run.out + run.err, HasSubstr(" tokens are more than max_prompt_tokens 60"));
  const std::vector<Json> records = read_records(folder.file("run/validation.jsonl"));
  ASSERT_EQ(records.size(), 1U);
  const Json& record = records[0];
  EXPECT_GT(record.at("calls/_skipped").as_double(), 0);
  EXPECT_GT(record.at("calls/_count").as_double(), 0);
  EXPECT_EQ(record.at("calls/has_call").as_double(), 0);
}

TEST(ToolCallRunTest, ASignalDoesNotWaitForWhatTheModelWrites) {
  for (const char* ranks : {"1", "2"}) {
    const TemporaryDirectory folder;
    test::Program program({test::automodel_binary(), "run",
                           test::source_file("recipes/llm_finetune/agent_traces_quickstart.yaml"),
                           cat("--nproc-per-node=", ranks), "--step_scheduler.max_steps=100",
                           "--lr_scheduler=none", "--step_scheduler.val_every_steps=1",
                           "--tool_call_eval.max_new_tokens=100000",
                           "--step_scheduler.global_batch_size=2",
                           "--step_scheduler.local_batch_size=1", "--distributed.strategy=ddp",
                           "--optimizer.lr=0",  // what such a model writes has no end
                           cat("--checkpoint.checkpoint_dir=", folder.file("run"))});
    test::wait_for_records(folder.file("run/training.jsonl"));
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ::kill(program.pid(), SIGTERM);
    const double begin = monotonic_seconds();
    const ProgramResult run = program.wait();
    EXPECT_EQ(run.status, 75) << run.err;
    EXPECT_LT(monotonic_seconds() - begin, 30);
    EXPECT_THAT(run.out + run.err, HasSubstr("the run is to end; its tool calls are not scored"));
    EXPECT_TRUE(path_exists(folder.file("run/LATEST/model/index.json"))) << run.err;
  }
}

TEST(ToolCallRunTest, PromptsThatTheTemplateRefusesAreToldOf) {
  const TemporaryDirectory folder;
  const ProgramResult run =
      calling("run", {"--step_scheduler.max_steps=1", "--lr_scheduler=none",
                      "--step_scheduler.val_every_steps=1", "--checkpoint.enabled=false",
                      "--tool_call_eval.chat_template={{ raise_exception('no tools') }}",
                      cat("--checkpoint.checkpoint_dir=", folder.file("run"))});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out + run.err, HasSubstr("answer 0 is not asked for: "));
  EXPECT_THAT(run.out + run.err, HasSubstr("no tools"));
  EXPECT_THAT(run.out + run.err,
              HasSubstr("tool_call_eval: 11 of 11 prompts are left out: its scores stay 0"));
}

TEST(ToolCallRunTest, RowsAndPromptsAreAsManyAsAreAskedFor) {
  const TemporaryDirectory folder;
  folder.write("traces/train.jsonl",
               read_file(test::source_file("recipes/data/agent_traces.jsonl")));
  const std::string of_folder = cat("--tool_call_eval.dataset_name=", folder.file("traces"));
  int number = 0;
  const auto count = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--step_scheduler.max_steps=1", "--lr_scheduler=none",
                             "--step_scheduler.val_every_steps=1",
                             "--tool_call_eval.max_new_tokens=1", "--checkpoint.enabled=false"});
    const std::vector<Json> records = validations(folder.file(cat("run", number++)), more);
    return records.empty() ? -1 : metric(records[0], "_count");
  };
  // The first row has two answers that call, the second one.
  EXPECT_EQ(count({"--tool_call_eval.limit_dataset_samples=1"}), 2);
  EXPECT_EQ(count({"--tool_call_eval.limit_dataset_samples=2"}), 3);
  EXPECT_EQ(count({"--tool_call_eval.max_eval_samples=1"}), 1);
  EXPECT_EQ(count({"--tool_call_eval.path=none", of_folder}), count({}));
  EXPECT_EQ(count({"--tool_call_eval.path=none", of_folder, "--tool_call_eval.split=train[1:2]"}),
            1);
}

TEST(ToolCallRunTest, TellsWhatItDoesNotDo) {
  const auto told = [](const std::vector<std::string>& more) { return calling("check", more).out; };
  EXPECT_THAT(told({"--validation_dataset=none"}),
              HasSubstr("'tool_call_eval' has no effect: there is no validation_dataset"));
  EXPECT_THAT(
      told({"--distributed.strategy=megatron_fsdp", "--world-size=2", "--distributed.cp_size=2"}),
      HasSubstr("cp_size > 1 with tool_call_eval is not in this version"));
  EXPECT_THAT(told({"--distributed.strategy=fsdp2", "--world-size=2"}),
              HasSubstr("tool calls are not evaluated under fsdp2 on several ranks"));
  EXPECT_THAT(told({"--distributed.strategy=fsdp2", "--world-size=1"}),
              testing::Not(HasSubstr("tool calls are not evaluated")));
  EXPECT_THAT(told({"--distributed.strategy=fsdp2", "--world-size=2", "--distributed.tp_size=2"}),
              HasSubstr("tp_size > 1 with tool_call_eval is not in this version"));
  EXPECT_THAT(told({"--tool_call_eval.metric_prefix=/"}),
              HasSubstr("one line, and not an empty one"));
  EXPECT_THAT(told({"--tool_call_eval.path=recipes/data/gsm8k_test.jsonl"}),
              HasSubstr("no column 'messages' or 'conversations'; columns: question, answer "
                        "[tool_call_eval.path]"));
  EXPECT_THAT(told({"--tool_call_eval.dataset_name=x/y"}),
              HasSubstr("give either dataset_name (data set of the hub, or a folder) or path"));
  EXPECT_THAT(told({"--tool_call_eval._target_=ToolCallEvaluator"}), HasSubstr("error: "));
}

}  // namespace
}  // namespace automodel::recipes
