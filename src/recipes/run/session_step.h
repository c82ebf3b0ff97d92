#pragma once

#include <cstdint>
#include <memory>

#include "distributed/groups/device_mesh.h"
#include "optim/lr_schedule.h"
#include "recipes/read/recipe.h"
#include "recipes/run/expert_balance.h"
#include "recipes/run/run_context.h"
#include "recipes/run/session_model.h"
#include "recipes/run/teacher.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// What build_pass() makes a pass from. Everything here outlives the pass.
struct PassParts {
  const SessionModel& model;
  const distributed::DeviceMesh& mesh;
  EnginePlace place;
  ExpertBalance& balance;      ///< is told of the batches that a pipeline cuts
  Teacher* teacher = nullptr;  ///< null unless the recipe distils
  int64_t grad_acc_steps = 1;
};

/// Makes the pass for the recipe's kind; the only place that tells the kinds apart.
std::unique_ptr<training::BatchPass> build_pass(const Recipe& recipe, const PassParts& parts);

optim::LrSchedule build_schedule(const Recipe& recipe, int64_t max_steps);

training::TrainStepOptions step_options(const Recipe& recipe, const SessionModel& model,
                                        const distributed::DeviceMesh& mesh,
                                        const RunContext& context);

}  // namespace automodel::recipes
