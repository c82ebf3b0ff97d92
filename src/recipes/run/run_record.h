#pragma once

#include <string>
#include <vector>

#include "config/diagnostic.h"
#include "config/load.h"
#include "core/json.h"
#include "datasets/dataset.h"
#include "distributed/groups/device_mesh.h"
#include "recipes/read/recipe.h"
#include "recipes/run/run_recipe.h"
#include "recipes/run/session_model.h"
#include "recipes/run/validation.h"
#include "training/step_scheduler.h"

namespace automodel::recipes {

/// What run.json says of a run before anything of it is made: its id, the version and command, the
/// recipe's values with their origins, and the machine.
Json begin_run_record(const RunOptions& options, const config::Document& document,
                      const config::Diagnostics& diagnostics);

/// What a session consists of.
struct RecordedParts {
  const Recipe& recipe;
  const SessionModel& model;
  const datasets::BatchStream& training;
  const Validation& validation;
  const training::StepScheduler& scheduler;
  const distributed::DeviceMesh& mesh;
  int world_size = 1;
  std::string device;
};

/// Adds what is known once a session is made: ranks, mesh, model, optimizer, steps and data.
void add_session(const RecordedParts& parts, Json& record);

}  // namespace automodel::recipes
