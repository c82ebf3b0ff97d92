#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "distributed/engine/engine.h"
#include "distributed/groups/device_mesh.h"
#include "models/causal_lm.h"
#include "optim/optimizer.h"
#include "recipes/build/pipeline_request.h"
#include "recipes/passes/pipeline_pass.h"
#include "recipes/read/recipe.h"
#include "recipes/run/run_context.h"

namespace automodel::recipes {

/// A rank's part of the model, the engine that holds its memory, and the optimizer over it.
struct SessionModel {
  std::vector<std::shared_ptr<models::CausalLM>> parts;  ///< this rank's stages, or the one model
  std::optional<PipelineRequest> pipeline;               ///< set where the recipe has pp_size > 1
  std::optional<BuiltPipeline> stages;                   ///< set where `pipeline` is
  std::unique_ptr<distributed::Engine> whole;            ///< null where `pipeline` is set
  std::unique_ptr<optim::Optimizer> optimizer;           ///< null for a frozen model

  /// The first part; its names and sizes are those of the whole model.
  models::CausalLM& model() const { return *parts.front(); }
  distributed::Engine& engine() const { return stages ? *stages->engine : *whole; }
};

/// Makes the recipe's mesh over all ranks of the world. Every rank calls it.
distributed::DeviceMesh build_mesh(const Recipe& recipe, comm::World& world);

/// Builds the model in upstream's order: modules, parallelism, memory, optimizer; weights are
/// loaded later. A frozen model is in evaluation mode and has no optimizer. Every rank calls it.
/// Throws InputError when the model is not on this machine.
SessionModel build_session_model(const Recipe& recipe, const distributed::DeviceMesh& mesh,
                                 const EnginePlace& place);

}  // namespace automodel::recipes
