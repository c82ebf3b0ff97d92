#pragma once

#include <c10/core/Device.h>

#include <future>
#include <memory>
#include <optional>

#include "core/json.h"
#include "recipes/plan/make_plan.h"
#include "recipes/plan/recipe_plan.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The object `plan` of run.json: the bytes of the fullest rank while it loads, in a step, while it
/// saves and the most of these three; its bytes on the host; the parts of a step's bytes; what is
/// not counted; and of a pipeline the ranks' idle share.
Json plan_record(const RecipePlan& plan);

/// Makes a run's plan on a thread of its own while the run starts.
class RunPlan final {
 public:
  /// Starts the thread, for which the destructor waits. `recipe` outlives this object.
  RunPlan(const Recipe& recipe, const PlannedPlace& place);

  /// The plan's plan_record(), or {"reason": TEXT} where no plan can be made. Absent when it is not
  /// ready within `patience_seconds`, and after it has been returned once.
  std::optional<Json> take(double patience_seconds);

 private:
  std::future<Json> plan_;
};

/// Starts the plan of a run of `world_size` ranks that compute on `device`; null for a benchmark,
/// which records no plan.
std::unique_ptr<RunPlan> begin_plan(const Recipe& recipe, int world_size, at::Device device);

}  // namespace automodel::recipes
