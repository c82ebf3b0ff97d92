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

}  // namespace
}  // namespace automodel::recipes
