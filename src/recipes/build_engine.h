#pragma once

#include <memory>

#include "core/reporter.h"
#include "distributed/device_mesh.h"
#include "distributed/engine.h"
#include "distributed/parallelizer.h"
#include "models/causal_lm.h"
#include "recipes/recipe.h"

namespace automodel::recipes {

/// Where a rank's engine computes and whom it tells.
struct EnginePlace {
  at::Device device = at::kCPU;
  TraceSink* trace = nullptr;  ///< may be null
  Reporter* reporter = nullptr;
};

/// A model as strategies see it; `model` outlives it.
distributed::ParallelModel parallel_model(models::CausalLM& model);

/// Spreads a model over the mesh as the recipe's `distributed` section says and gives it memory.
/// Called by every rank.
std::unique_ptr<distributed::Engine> build_engine(const Recipe& recipe, models::CausalLM& model,
                                                  const distributed::DeviceMesh& mesh,
                                                  const EnginePlace& place);

}  // namespace automodel::recipes
