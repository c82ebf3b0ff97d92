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

/// What run.json says of a plan: the bytes of the fullest rank while it loads, in a step, while it
/// saves and of these the most, those on the host, what a step's bytes are made of, what is not
/// counted, and of a pipeline the ranks' idle share.
Json plan_record(const RecipePlan& plan);

/// Plans a run beside its start, on a thread of its own. A plan that cannot be made is its reason.
class RunPlan final {
 public:
  /// Begins. `recipe` outlives this object, whose destructor waits for the thread.
  RunPlan(const Recipe& recipe, const PlannedPlace& place);

  /// plan_record()'s, or {"reason": TEXT}; once, when it is made within so many seconds.
  std::optional<Json> take(double patience_seconds);

 private:
  std::future<Json> plan_;
};

/// Begins to plan a run of so many ranks on such a device; null for a benchmark, which records
/// none.
std::unique_ptr<RunPlan> begin_plan(const Recipe& recipe, int world_size, at::Device device);

}  // namespace automodel::recipes
