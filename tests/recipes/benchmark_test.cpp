#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "recipes/runs.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::TemporaryDirectory;
using testing::HasSubstr;

ProgramResult run_benchmark(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      test::automodel_binary(), "run",
      test::source_file("recipes/llm_benchmark/qwen3_moe_tiny.yaml")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return test::run_program(arguments);
}

TEST(BenchmarkTest, ReportsWhatItsStepsTook) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("new/report.json");
  const std::string logs = folder.file("logs");
  for (const int ranks : {1, 2}) {
    const ProgramResult result =
        run_benchmark({cat("--benchmark.json_output_path=", path), cat("--nproc-per-node=", ranks),
                       cat("--checkpoint.checkpoint_dir=", logs)});
    ASSERT_EQ(result.status, 0) << result.err;
    const Json report = Json::parse_file(path);
    EXPECT_EQ(report.at("total_steps").as_int(), 6);
    EXPECT_EQ(report.at("warmup_steps").as_int(), 2);
    EXPECT_EQ(report.at("training_steps").as_int(), 4);
    EXPECT_EQ(report.at("world_size").as_int(), ranks);
    EXPECT_EQ(report.at("global_batch_size").as_int(), 8);
    EXPECT_EQ(report.at("local_batch_size").as_int(), 4);
    EXPECT_EQ(report.at("seq_len").as_int(), 64);
    EXPECT_EQ(report.at("peak_tflops").as_double(), 0.2);
    EXPECT_EQ(report.at("flops_scope").as_string(), "model");
    const double timed = report.at("training_time_seconds").as_double();
    const double average = report.at("avg_iter_time_seconds").as_double();
    const double tflops = report.at("tflops_total").as_double();
    EXPECT_GT(report.at("setup_time_seconds").as_double(), 0);
    EXPECT_GT(report.at("warmup_time_seconds").as_double(), 0);
    EXPECT_GT(timed, 0);
    EXPECT_NEAR(average, timed / 4, 1e-12);
    EXPECT_GT(tflops, 0);
    EXPECT_NEAR(report.at("tflops_per_gpu").as_double(), tflops / ranks, 1e-12);
    EXPECT_NEAR(report.at("avg_mfu_percent").as_double(), 100 * tflops / ranks / average / 0.2,
                1e-9);
    const Json& computing = report.at("forward_backward_milliseconds");
    const Json& updating = report.at("optimizer_milliseconds");
    EXPECT_GT(updating.at("min").as_double(), 0);
    EXPECT_LE(computing.at("min").as_double(), computing.at("max").as_double());
    EXPECT_LE(computing.at("max").as_double() + updating.at("min").as_double(), 1000 * average);
    EXPECT_THAT(result.out, HasSubstr("Total warmup time (2 steps): "));
    EXPECT_THAT(result.out, HasSubstr("Total iteration time (4 steps): "));
    EXPECT_THAT(result.out, HasSubstr("Average MFU: "));
    EXPECT_FALSE(path_exists(logs));  // nothing is saved
  }
}

/// The losses that a benchmark's lines show, each with its step.
std::map<std::string, std::string> losses_of(const std::string& text) {
  std::map<std::string, std::string> losses;
  for (const std::string& line : split(text, '\n')) {
    const size_t at = line.find("| loss=");
    const size_t step = line.find("step ");
    if (at == std::string::npos) continue;
    losses[line.substr(step, line.find(" |", step) - step)] =
        line.substr(at, line.find(" |", at + 1) - at);
  }
  return losses;
}

TEST(BenchmarkTest, TrainsWithoutClippingAndSchedule) {
  const auto plain = run_benchmark({});
  const auto losses = losses_of(plain.out);
  ASSERT_EQ(losses.size(), 6U) << plain.out << plain.err;
  const auto other =
      run_benchmark({"--clip_grad_norm.max_norm=1e-9", "--lr_scheduler.lr_warmup_steps=5",
                     "--lr_scheduler.lr_decay_style=constant"});
  EXPECT_EQ(losses_of(other.out), losses);
  EXPECT_THAT(other.out + other.err, HasSubstr("'clip_grad_norm' has no effect"));
  EXPECT_THAT(other.out + other.err, HasSubstr("'lr_scheduler' has no effect"));
  EXPECT_NE(losses_of(run_benchmark({"--optimizer.lr=1e-2"}).out), losses);
}

TEST(BenchmarkTest, DataHasTheModelsVocabularyAndTheBatchOfAStep) {
  const auto result = run_benchmark(
      {"--dataset.vocab_size=7", "--dataset.batch_size=1", "--step_scheduler.max_steps=3"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out + result.err, HasSubstr("a benchmark takes vocab_size from the model: "));
  EXPECT_THAT(result.out + result.err,
              HasSubstr("a benchmark takes batch_size from step_scheduler.local_batch_size: 4"));
  EXPECT_THAT(result.out, HasSubstr(cat("num_label_tokens=", 8 * 63)));
}

TEST(BenchmarkTest, MistakesAreNamed) {
  const auto told = [](const std::vector<std::string>& changes) {
    return run_benchmark(changes).err;
  };
  EXPECT_THAT(told({"--benchmark.flops_scope=vision"}),
              HasSubstr("flops_scope takes model or text, found 'vision'"));
  EXPECT_THAT(told({"--benchmark.warmup_steps=6"}),
              HasSubstr("leaves no step to time: step_scheduler.max_steps is 6"));
  EXPECT_THAT(told({"--benchmark=none"}), HasSubstr("missing key 'benchmark'"));
  EXPECT_THAT(told({"--benchmark.warmup_stepz=1"}), HasSubstr("did you mean 'warmup_steps'"));
}

TEST(BenchmarkTest, RangesForAProfilerAreToldToHaveNoEffect) {
  const auto said = [](const std::vector<std::string>& changes) {
    std::vector<std::string> arguments = {
        test::automodel_binary(), "check",
        test::source_file("recipes/llm_benchmark/qwen3_moe_tiny.yaml")};
    arguments.insert(arguments.end(), changes.begin(), changes.end());
    const ProgramResult result = test::run_program(arguments);
    EXPECT_EQ(result.status, 0);
    return result.out + result.err;
  };
  const std::string off =
      said({"--benchmark.nsys_start=-1", "--benchmark.nsys_end=-1", "--benchmark.nsys_ranks=[]"});
  EXPECT_EQ(off.find("nsys"), std::string::npos) << off;
  const std::string on =
      said({"--benchmark.nsys_start=2", "--benchmark.nsys_end=3", "--benchmark.nsys_ranks=[0]"});
  for (const char* key : {"nsys_start", "nsys_end", "nsys_ranks"}) {
    EXPECT_THAT(on, HasSubstr(cat("'", key, "' has no effect")));
  }
}

TEST(BenchmarkTest, WithoutAPeakUtilisationIsUnknown) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("report.json");
  const auto result =
      run_benchmark({"--benchmark.peak_tflops=none", "--mfu.device=abacus",
                     cat("--benchmark.json_output_path=", path), "--step_scheduler.max_steps=3"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(Json::parse_file(path).at("avg_mfu_percent").is_null());
  EXPECT_THAT(result.out, HasSubstr("Average MFU: unknown"));
}

}  // namespace
}  // namespace automodel::recipes
