#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/bind.h"
#include "distributed/pipeline/schedule.h"
#include "distributed/pipeline/stage_split.h"
#include "models/causal_lm.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The pipeline that a recipe's `distributed` section asks for.
struct PipelineRequest {
  distributed::PipelineSchedule schedule;
  distributed::StageModules stages;  ///< modules of every stage
};

/// One mistake in it.
struct PipelineFinding {
  std::string section;  ///< "distributed.pipeline" or "distributed"
  std::string key;
  std::string text;
  bool is_unsupported = false;
};

/// The pipeline of a recipe's model (build_model()), or the findings that prevent it. pp_size is
/// above 1.
struct PipelineAnswer {
  std::optional<PipelineRequest> request;
  std::vector<PipelineFinding> findings;
};
PipelineAnswer ask_pipeline(const Recipe& recipe, const models::CausalLM& model);

/// The pipeline of a recipe that passed its checks.
PipelineRequest pipeline_request(const Recipe& recipe, const models::CausalLM& model);

/// Adds the findings at their keys, including deadlocks of a schedule read from a file. Builds the
/// model without memory to know its modules.
void check_pipeline(const Recipe& recipe, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes
