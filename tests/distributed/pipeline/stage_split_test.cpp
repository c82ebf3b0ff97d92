#include "distributed/pipeline/stage_split.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/text.h"
#include "support/errors.h"

namespace automodel::distributed {
namespace {

using test::error_of;

nn::ParallelPlan plan_of(int num_layers) {
  nn::ParallelPlan plan;
  plan.embedding = "model.embed_tokens";
  for (int i = 0; i < num_layers; ++i) plan.blocks.push_back(cat("model.layers.", i));
  plan.final_norm = "model.norm";
  plan.head = "lm_head";
  return plan;
}

TEST(StageSplitTest, FirstStagesGetTheLayersThatAreLeftOver) {
  EXPECT_EQ(
      split_into_stages(plan_of(5), 2),
      (StageModules{{"model.embed_tokens", "model.layers.0", "model.layers.1", "model.layers.2"},
                    {"model.layers.3", "model.layers.4", "model.norm", "lm_head"}}));
}

TEST(StageSplitTest, OneStageHasEverything) {
  EXPECT_EQ(split_into_stages(plan_of(1), 1),
            (StageModules{{"model.embed_tokens", "model.layers.0", "model.norm", "lm_head"}}));
}

TEST(StageSplitTest, MoreStagesThanLayersAreRefused) {
  EXPECT_EQ(error_of<UserError>([] { split_into_stages(plan_of(3), 4); }),
            "Number of stages (4) cannot exceed number of layers (3)");
  EXPECT_EQ(error_of<UserError>([] { split_into_stages(plan_of(3), 0); }),
            "Number of stages must be at least 1");
}

TEST(VirtualStagesTest, SchedulesHaveOneOrTwoStagesARankByThemselves) {
  EXPECT_EQ(calculate_virtual_stages({.num_layers = 8, .pp_size = 4}), 4);
  EXPECT_EQ(calculate_virtual_stages({.num_layers = 8, .pp_size = 4, .is_multi_stage = true}), 8);
}

TEST(VirtualStagesTest, LayersPerStageCountsStages) {
  EXPECT_EQ(calculate_virtual_stages({.num_layers = 8, .layers_per_stage = 2, .pp_size = 4}), 4);
  EXPECT_EQ(calculate_virtual_stages(
                {.num_layers = 12, .layers_per_stage = 2, .pp_size = 2, .is_multi_stage = true}),
            6);
}

TEST(VirtualStagesTest, StagesAreRoundedToAMultipleOfTheRanks) {
  StageCountRequest request{
      .num_layers = 10, .layers_per_stage = 2, .pp_size = 2, .is_multi_stage = true};
  EXPECT_EQ(error_of<UserError>([&] { calculate_virtual_stages(request); }),
            "Number of virtual stages (5) must be divisible by pipeline parallel size (2). Model "
            "has 10 layers with pipeline_parallel_layers_per_stage=2. Please adjust "
            "pipeline_parallel_layers_per_stage to a value that results in a number of stages "
            "divisible by 2.");
  request.rounding = "up";
  EXPECT_EQ(calculate_virtual_stages(request), 6);
  request.rounding = "down";
  EXPECT_EQ(calculate_virtual_stages(request), 4);
  request.rounding = "nearest";
  EXPECT_EQ(error_of<UserError>([&] { calculate_virtual_stages(request); }),
            "Invalid value for round_to_pp_multiple: nearest. Use 'up' or 'down'.");
}

TEST(VirtualStagesTest, ASchedulesStagesPerRankAreChecked) {
  EXPECT_EQ(error_of<UserError>([] {
              calculate_virtual_stages({.num_layers = 8, .layers_per_stage = 2, .pp_size = 2});
            }),
            "Single stage schedule requires exactly 1 stage per rank, but got 2 stages per rank. "
            "Model has 8 layers with pipeline_parallel_layers_per_stage=2, resulting in "
            "num_virtual_stages=4 across 2 PP ranks. Please increase "
            "pipeline_parallel_layers_per_stage to 4 or higher to achieve 1 stage per rank.");
  EXPECT_EQ(error_of<UserError>([] {
              calculate_virtual_stages(
                  {.num_layers = 8, .layers_per_stage = 4, .pp_size = 2, .is_multi_stage = true});
            }),
            "Multi-stage schedule requires at least 2 stages per rank, but got 1 stages per rank. "
            "Model has 8 layers with pipeline_parallel_layers_per_stage=4, resulting in "
            "num_virtual_stages=2 across 2 PP ranks. Please decrease "
            "pipeline_parallel_layers_per_stage to 2 or lower to achieve at least 2 stages per "
            "rank.");
}

TEST(StageModulesTest, ListsThatHaveEveryModuleOnceInOrderAreRight) {
  const nn::ParallelPlan plan = plan_of(3);
  EXPECT_EQ(stage_modules_finding(plan, split_into_stages(plan, 2)), "");
  const StageModules listed = {
      {"model.rotary_emb", "model.layers.0", "model.embed_tokens"},
      {"model.layers.1", "model.layers.2", "model.norm", "lm_head", "model.rotary_emb"}};
  EXPECT_EQ(stage_modules_finding(plan, listed), "");
  EXPECT_EQ(normalize_stage_modules(listed)[0],
            (std::vector<std::string>{"model.layers.0", "model.embed_tokens"}));
}

TEST(StageModulesTest, MissingRepeatedUnknownAndMisplacedModulesAreNamed) {
  const nn::ParallelPlan plan = plan_of(2);
  const auto finding = [&](const StageModules& parts) {
    return stage_modules_finding(plan, parts);
  };
  EXPECT_EQ(finding({{"model.embed_tokens", "model.layers.0"}, {"model.norm", "lm_head"}}),
            "no part has model.layers.1: every module belongs to one part");
  EXPECT_EQ(finding({{"model.embed_tokens", "model.layers.0", "model.layers.1"},
                     {"model.layers.1", "model.norm", "lm_head"}}),
            "model.layers.1 is in part 0 and again in part 1");
  EXPECT_EQ(finding({{"model.embed_tokens", "model.embed_tokens"}}),
            "part 0 lists model.embed_tokens twice");
  EXPECT_EQ(finding({{"model.embed_token"}}),
            "part 0 lists 'model.embed_token', which the model has not; did you mean "
            "'model.embed_tokens'?");
  EXPECT_EQ(finding({{"model.embed_tokens", "model.layers.1"},
                     {"model.layers.0", "model.norm", "lm_head"}}),
            "model.layers.1 is in part 0, before model.layers.0 in part 1");
  EXPECT_EQ(finding({{"model.embed_tokens"}, {"model.rotary_emb"}}), "part 1 is empty");
}

}  // namespace
}  // namespace automodel::distributed
