#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/diagnostic.h"
#include "config/load.h"
#include "core/json.h"
#include "core/reporter.h"
#include "datasets/samples/dataset.h"
#include "distributed/groups/device_mesh.h"
#include "recipes/read/recipe.h"
#include "recipes/run/expert_balance.h"
#include "recipes/run/run_context.h"
#include "recipes/run/run_recipe.h"
#include "recipes/run/session_model.h"
#include "recipes/run/validation.h"
#include "training/step_scheduler.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// What run.json says of a run before anything of it is made: its id, the version and command, the
/// recipe's values with their origins, and the machine.
Json begin_run_record(const RunOptions& options, const config::Document& document,
                      const config::Diagnostics& diagnostics);

/// The parts of a session that its records tell of. They outlive the records.
struct RecordedParts {
  const Recipe& recipe;
  const SessionModel& model;
  const datasets::BatchStream& training;
  const Validation& validation;
  const training::StepScheduler& scheduler;
  const distributed::DeviceMesh& mesh;
  const training::TrainStep& train_step;
  ExpertBalance& balance;
};

/// Adds what is known once a session is made: ranks, mesh, model, optimizer, steps and data.
void add_session(const RecordedParts& parts, const RunContext& context, Json& record);

/// What an event `start` tells of a run with this record: its id, version and command.
Json facts_of_start(const Json& record);

/// The values that are others than in an earlier record: [{"key", "from", "to"}], null where the
/// key was or is not there.
Json changed_values(const Json& earlier, const Json& record);

/// "changed since the last run here: seed 42 -> 7, ..." of such changes, the first dozen; "" for
/// none.
std::string text_of_changes(const Json& changed);

/// Keeps the run.json that lies in FOLDER as run.N.json, N being the first number that is free
/// behind all others, and returns it; nullopt where there is none that can be read. The first one
/// and the newest 30 stay, however often a run is started again. What keeps it from being renamed
/// is a warning.
std::optional<Json> keep_earlier_record(const std::string& folder, Reporter& reporter);

/// Renames the records that keep_earlier_record() has kept to NAME.old: the run begins anew, and is
/// not theirs. What keeps that from being done is a warning.
void set_earlier_records_aside(const std::string& folder, Reporter& reporter);

}  // namespace automodel::recipes
