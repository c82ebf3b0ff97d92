#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/bind.h"
#include "distributed/pipeline/schedule.h"
#include "distributed/pipeline/stage_split.h"
#include "nn/parallel_plan.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The pipeline that a recipe's `distributed` section asks for.
struct PipelineRequest {
  distributed::PipelineSchedule schedule;
  distributed::StageModules stages;  ///< modules of every stage
};

/// One thing that is wrong with it.
struct PipelineFinding {
  std::string section;  ///< "distributed.pipeline" or "distributed"
  std::string key;
  std::string text;
  bool is_unsupported = false;
};

/// What the pipeline of a model with this plan is, or what is wrong with it. pp_size is above 1.
struct PipelineAnswer {
  std::optional<PipelineRequest> request;
  std::vector<PipelineFinding> findings;
};
PipelineAnswer ask_pipeline(const Recipe& recipe, const nn::ParallelPlan& plan);

/// The pipeline of a recipe that was checked.
PipelineRequest pipeline_request(const Recipe& recipe, const nn::ParallelPlan& plan);

/// Adds the findings at their keys, and deadlocks of a schedule's file. Builds the model without
/// memory to know its modules.
void check_pipeline(const Recipe& recipe, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes
