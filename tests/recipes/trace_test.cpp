// `run --trace`: what a session did and when, one file a rank.
#include <gtest/gtest.h>

#include <map>

#include "core/json.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

/// How many spans of each name a trace's file holds, "step 0" and "step 1" as "step".
std::map<std::string, int64_t> spans_of(const std::string& path) {
  std::string text = read_file(path);
  const size_t end = text.find_last_of('}');
  text.resize(end + 1);
  const Json events = Json::parse(text + "]", path);
  std::map<std::string, int64_t> counts;
  for (const Json& event : events.as_array()) {
    if (event.get("ph", "") != std::string("X")) continue;
    EXPECT_GE(event.at("dur").as_double(), 0);
    std::string name = event.at("name").as_string();
    if (name.starts_with("step ")) name = "step";
    ++counts[name];
  }
  return counts;
}

TEST(TraceTest, EveryRankTellsOfStepsSavesAndWaitsForBatches) {
  const test::TemporaryDirectory folder;
  const std::vector<std::string> arguments = {
      test::automodel_binary(),
      "run",
      test::source_file("recipes/smoke/mock_pretrain.yaml"),
      "--trace",
      folder.file("trace.json"),
      "--step_scheduler.max_steps=3",
      "--checkpoint.enabled=true",
      cat("--checkpoint.checkpoint_dir=", folder.file("run"))};
  const test::ProgramResult result = test::run_program(test::on({2, {}}, arguments));
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* name : {"trace.json", "trace.rank1.json"}) {
    SCOPED_TRACE(name);
    const auto spans = spans_of(folder.file(name));
    EXPECT_EQ(spans.at("step"), 3);
    EXPECT_EQ(spans.at("save"), 1);
    // A step's batches are taken before the step before it.
    EXPECT_EQ(spans.at("next batches"), 4);
  }
}

/// The spans of a short run on two ranks.
std::map<std::string, int64_t> spans_of_run(const std::vector<std::string>& more) {
  const test::TemporaryDirectory folder;
  const std::string trace = folder.file("trace.json");
  std::vector<std::string> arguments = test::smoke_run(
      folder.file("run"), {"--trace", trace, "--checkpoint.enabled=false",
                           "--step_scheduler.max_steps=2", "--step_scheduler.local_batch_size=2"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  const test::ProgramResult result = test::run_program(test::on({2, {}}, arguments));
  EXPECT_EQ(result.status, 0) << result.err;
  return spans_of(trace);
}

TEST(TraceTest, AValidationGathersOnceWhereUnitsStayGathered) {
  const auto gathers = [](const std::string& reshards, bool validates) {
    std::vector<std::string> more = {"--distributed.strategy=fsdp2",
                                     cat("--distributed.reshard_after_forward=", reshards),
                                     "--step_scheduler.val_every_steps=1"};
    if (validates) {
      const std::string set = "--validation_dataset.";
      for (const std::string& key :
           {std::string("_target_=ColumnMappedTextInstructionDataset"),
            cat("path_or_dataset_id=", test::source_file("tests/recipes/data/validation.jsonl")),
            std::string("column_mapping.question=question"),
            std::string("column_mapping.answer=answer"),
            cat("tokenizer=", test::source_file("configs/quickstart_tokenizer"))}) {
        more.push_back(set + key);
      }
    }
    return spans_of_run(more)["gather model.layers.0"];
  };
  // Two validations: of one gather each, or of one a batch, of which there are several.
  EXPECT_EQ(gathers("false", true), gathers("false", false) + 2);
  EXPECT_GE(gathers("true", true), gathers("true", false) + 4);
}

TEST(TraceTest, ZeroZeroReducesUnitByUnitAmongReplicas) {
  auto spans =
      spans_of_run({"--distributed.strategy=megatron_fsdp", "--distributed.zero_dp_strategy=0"});
  for (const char* unit : {"root", "model.layers.0", "model.layers.1"}) {
    EXPECT_EQ(spans[cat("all_reduce ", unit)], 2) << unit;
    EXPECT_EQ(spans[cat("gather ", unit)] + spans[cat("reduce_scatter ", unit)], 0) << unit;
  }
}

}  // namespace
}  // namespace automodel::recipes
