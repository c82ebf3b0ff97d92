#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "core/phase_times.h"
#include "core/reporter.h"
#include "distributed/engine/engine.h"
#include "distributed/groups/device_mesh.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "distributed/strategies/parallelizer.h"
#include "models/causal_lm.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Where a rank's engine computes, and where it sends its reports and traces.
struct EnginePlace {
  at::Device device = at::kCPU;
  TraceSink* trace = nullptr;  ///< may be null
  Reporter* reporter = nullptr;
  /// Makes the optimizer once the model is sharded; may be empty.
  std::function<void(distributed::Engine&)> optimizer = {};
  PhaseTimes* times = nullptr;  ///< gets the phases "model" and "optimizer"; may be null
};

/// Every strategy that recipes may use, including those of single model classes.
distributed::StrategyRegistry strategies();

/// The options of the recipe's strategy; `architecture` is the model's class.
using StrategyOptions = std::variant<distributed::ParallelizeOptions, distributed::NvfsdpOptions,
                                     distributed::ReplicaOptions>;
StrategyOptions strategy_options(const Recipe& recipe, const std::string& architecture,
                                 const EnginePlace& place);

/// A model as strategies see it; `model` outlives it.
distributed::ParallelModel parallel_model(models::CausalLM& model);

/// Splits a model over the mesh as the recipe's `distributed` section says and allocates its
/// memory. Every rank calls it.
std::unique_ptr<distributed::Engine> build_engine(const Recipe& recipe, models::CausalLM& model,
                                                  const distributed::DeviceMesh& mesh,
                                                  const EnginePlace& place);

/// The modules of a model that the recipe's strategy makes units, for plans; taken from the same
/// registry as build_engine().
distributed::PlannedUnits planned_units(const Recipe& recipe, models::CausalLM& model);

}  // namespace automodel::recipes
