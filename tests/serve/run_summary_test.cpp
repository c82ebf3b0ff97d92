#include "serve/run_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "core/timestamp.h"
#include "report/run_folder.h"

namespace automodel::serve {
namespace {

using report::LockState;
using report::Metric;
using report::RunState;
using test::step_line;
using test::TemporaryDirectory;
using test::write_run;

std::string event(const std::string& name, const std::string& more = "") {
  return cat("{\"event\": \"", name, "\", \"timestamp\": \"2026-08-01T00:00:00.000Z\"", more,
             "}\n");
}

RunSummary summary_of(const std::string& folder) {
  return SummaryReader({"a", folder}, "root").update(unix_seconds());
}

TEST(RunSummaryTest, AStatusIsWhatTheEventsSayElseWhatTheLockSays) {
  EXPECT_EQ(run_status(RunState::kDone, LockState::kHeld, 0), RunStatus::kFinished);
  EXPECT_EQ(run_status(RunState::kFailed, LockState::kFree, 0), RunStatus::kFailed);
  EXPECT_EQ(run_status(RunState::kPreempted, LockState::kFree, 0), RunStatus::kStopped);
  EXPECT_EQ(run_status(RunState::kInterrupted, LockState::kFree, 0), RunStatus::kStopped);
  EXPECT_EQ(run_status(RunState::kUnknown, LockState::kHeld, 1e6), RunStatus::kRunning);
  EXPECT_EQ(run_status(RunState::kUnknown, LockState::kFree, 0), RunStatus::kStale);
  EXPECT_EQ(run_status(RunState::kUnknown, LockState::kUnknown, 599), RunStatus::kRunning);
  EXPECT_EQ(run_status(RunState::kUnknown, LockState::kUnknown, 601), RunStatus::kStale);
}

TEST(RunSummaryTest, TheLastStepOfALongFileIsRead) {
  const TemporaryDirectory parent;
  std::string lines;
  for (int64_t step = 0; step < 2000; ++step) lines += step_line(step, cat(step, ".25"));
  const std::string folder =
      write_run(parent, {.training = lines + "{\"step\": 2000, \"lo", .events = event("start")});
  const RunSummary summary = summary_of(folder);
  EXPECT_EQ(summary.step, 1999);
  EXPECT_EQ(summary.last_of(Metric::kLoss), 1999.25);
  EXPECT_EQ(summary.step_seconds, 1785542400);
  EXPECT_GT(summary.latest_losses.size(), 100U);
  EXPECT_LT(summary.latest_losses.size(), 500U);
  EXPECT_EQ(summary.latest_losses.front(),
            2000.25 - static_cast<double>(summary.latest_losses.size()));
}

TEST(RunSummaryTest, OnlyWhatHasChangedIsReadAgain) {
  const TemporaryDirectory parent;
  const std::string folder = write_run(parent, {.training = step_line(0, "3")});
  SummaryReader reader({"a", folder}, "root");
  EXPECT_EQ(reader.update(0).step, 0);
  std::ofstream(path_join(folder, "training.jsonl"), std::ios::app) << step_line(1, "NaN");
  EXPECT_EQ(reader.update(0).step, 1);
  EXPECT_TRUE(std::isnan(reader.update(0).last_of(Metric::kLoss)));
  write_file_atomic(path_join(folder, "events.jsonl"),
                    event("failure", ", \"text\": \"rank 1 <died>\\u0007\""));
  EXPECT_EQ(reader.update(0).status, RunStatus::kFailed);
  EXPECT_EQ(reader.update(0).detail, "failed: rank 1 <died>\xEF\xBF\xBD");
  write_file_atomic(path_join(folder, "training.jsonl"), "");
  EXPECT_FALSE(reader.update(0).step.has_value());
}

TEST(RunSummaryTest, AnAlertStaysUntilTheRunStartsAnew) {
  const TemporaryDirectory parent;
  const std::string folder =
      write_run(parent, {.events = event("start") + event("advice", ", \"text\": \"a spike\"")});
  SummaryReader reader({"a", folder}, "root");
  ASSERT_TRUE(reader.update(0).alert);
  EXPECT_EQ(reader.update(0).alert->text, "a spike");
  const auto append = [&](const std::string& lines) {
    std::ofstream(path_join(folder, "events.jsonl"), std::ios::app) << lines;
  };
  // Long after what the reader looks at.
  for (int i = 0; i < 10; ++i)
    append(event("warning", cat(", \"text\": \"", std::string(40000, 'x'), "\"")));
  ASSERT_TRUE(reader.update(0).alert);
  EXPECT_EQ(reader.update(0).alert->text, "a spike");
  append(event("start"));
  EXPECT_FALSE(reader.update(0).alert);
}

std::string described(const std::string& values) {
  return cat(
      "{\"max_steps\": 4, \"model\": {\"architecture\": \"LlamaForCausalLM\"}, \"values\": {",
      values, "}}");
}

std::string value(const std::string& key, const std::string& text) {
  return cat("\"", key, "\": {\"value\": \"", text, "\", \"origin\": \"default\"}");
}

TEST(RunSummaryTest, TaskAndModelAreThoseOfTheRecipe) {
  const auto words = [](const std::string& values) {
    const TemporaryDirectory parent;
    const RunSummary summary = summary_of(write_run(parent, {.description = described(values)}));
    EXPECT_EQ(summary.max_steps, 4);
    return cat(summary.task, ", ", summary.model);
  };
  const std::string sft = value("recipe", "TrainFinetuneRecipeForNextTokenPrediction");
  EXPECT_EQ(words(""), ", LlamaForCausalLM");
  EXPECT_EQ(words(sft), "fine-tuning, LlamaForCausalLM");
  EXPECT_EQ(words(cat(sft, ", ", value("model.pretrained_model_name_or_path", "org/name"))),
            "fine-tuning, org/name");
  EXPECT_EQ(words(cat(sft, ", ", value("model.pretrained_model_name_or_path", "/data/models/x/"))),
            "fine-tuning, x");
  for (const auto& [path, model] : std::map<std::string, std::string>{
           {"/data/quick/LATEST/model/consolidated", "quick/LATEST"},
           {"checkpoints/quick/epoch_0_step_59/model/consolidated/", "quick/epoch_0_step_59"},
           {"/data/quick/LATEST/model", "quick/LATEST"},
           {"consolidated", "consolidated"},
           {"/data/models/consolidated", "data/models"}}) {
    EXPECT_EQ(words(cat(sft, ", ", value("model.pretrained_model_name_or_path", path))),
              cat("fine-tuning, ", model));
  }
  EXPECT_EQ(words(cat(sft, ", ", value("model._target_", "a.b.from_config"))),
            "pretraining, LlamaForCausalLM");
  EXPECT_EQ(words(cat(sft, ", ", value("peft.dim", "8"))), "LoRA, LlamaForCausalLM");
  EXPECT_EQ(words(cat(sft, ", ", value("peft.dim", "8"), ", ", value("quantization.x", "y"))),
            "QLoRA, LlamaForCausalLM");
  EXPECT_EQ(words(value("recipe", "KnowledgeDistillationRecipeForNextTokenPrediction")),
            "distillation, LlamaForCausalLM");
}

TEST(RunSummaryTest, FilesOfOtherFormsAreNoMistake) {
  const TemporaryDirectory parent;
  const std::string folder =
      write_run(parent, {.training = "[]\n{\"step\": 1e300}\n{\"step\": -1}\n\xFF\xFE\n",
                         .events = "{\"event\": 7}\n\"x\"\n",
                         .description = "{\"values\": [1], \"model\": 3, \"max_steps\": 1e300}"});
  const RunSummary summary = summary_of(folder);
  EXPECT_FALSE(summary.step.has_value());
  EXPECT_FALSE(summary.max_steps.has_value());
  EXPECT_EQ(summary.task, "");
  EXPECT_EQ(summary.model, "");
}

}  // namespace
}  // namespace automodel::serve
