// From keys of `distributed.pipeline` in YAML to the schedule and its stages. Losses would not
// tell, they are equal either way.

#include <gtest/gtest.h>

#include "models/causal_lm.h"
#include "recipes/build/pipeline_request.h"
#include "recipes/section_recipe.h"

namespace automodel::recipes {
namespace {

using distributed::ScheduleKind;

/// The pipeline of eight layers on two ranks, and batches of four.
PipelineRequest request_of(const std::string& keys) {
  Json config = golden_config("llama_default");
  config["num_hidden_layers"] = Json(8);
  Recipe recipe = recipe_with(cat("pp_size: 2\npipeline:\n  ", replace_all(keys, "\n", "\n  ")));
  recipe.step_scheduler.local_batch_size = 4;
  return pipeline_request(recipe, *models::build_causal_lm(config, at::kFloat));
}

TEST(PipelineFromYaml, pp_schedule) {
  EXPECT_EQ(request_of("pp_schedule: 1f1b").schedule.kind, ScheduleKind::k1F1B);
  EXPECT_EQ(request_of("pp_schedule: gpipe").schedule.kind, ScheduleKind::kGPipe);
  const PipelineRequest interleaved = request_of("pp_schedule: Interleaved1F1B");
  EXPECT_EQ(interleaved.schedule.kind, ScheduleKind::kInterleaved1F1B);
  EXPECT_EQ(interleaved.stages.size(), 4u);
}

TEST(PipelineFromYaml, pp_schedule_csv) {
  const PipelineRequest request =
      request_of(cat("pp_schedule_csv: ", test::source_file("tests/recipes/data/schedule_good.csv"),
                     "\npp_microbatch_size: 2"));
  EXPECT_EQ(request.schedule.kind, ScheduleKind::kCsv);
  EXPECT_EQ(request.schedule.actions[1].size(), 5u);  // its last backward is of two parts
}

TEST(PipelineFromYaml, pp_microbatch_size) {
  EXPECT_EQ(request_of("pp_microbatch_size: 1").schedule.shape.num_microbatches, 4);
  EXPECT_EQ(request_of("pp_microbatch_size: 2").schedule.shape.num_microbatches, 2);
}

TEST(PipelineFromYaml, layers_per_stage) {
  const std::string loop = "pp_schedule: Interleaved1F1B\nlayers_per_stage: ";
  EXPECT_EQ(request_of(cat(loop, 2)).stages.size(), 4u);
  EXPECT_EQ(request_of(cat(loop, 1)).stages.size(), 8u);
}

TEST(PipelineFromYaml, module_fqns_per_model_part) {
  const std::string layers =
      "model.layers.1, model.layers.2, model.layers.3, model.layers.4, model.layers.5, "
      "model.layers.6, model.layers.7";
  const PipelineRequest request =
      request_of(cat("module_fqns_per_model_part: [[model.embed_tokens, model.layers.0], [", layers,
                     ", model.norm, lm_head]]"));
  ASSERT_EQ(request.stages.size(), 2u);
  EXPECT_EQ(request.stages[0], (std::vector<std::string>{"model.embed_tokens", "model.layers.0"}));
  EXPECT_EQ(request.stages[1].size(), 9u);
}

}  // namespace
}  // namespace automodel::recipes
