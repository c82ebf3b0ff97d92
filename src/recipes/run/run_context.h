#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <optional>
#include <string>

#include "comm/groups/process_group.h"
#include "comm/world/world.h"
#include "core/json.h"
#include "core/phase_times.h"
#include "core/reporter.h"
#include "loggers/run_events.h"
#include "recipes/build/build_engine.h"
#include "recipes/records/run_plan.h"
#include "recipes/records/run_trackers.h"
#include "recipes/run/background_task.h"
#include "tensor/cuda_runtime.h"

namespace automodel::recipes {

/// What a run needs besides the recipe. Everything it points to outlives the session.
struct RunContext {
  comm::World* world = nullptr;
  comm::ProcessGroup group;  ///< all ranks of `world`
  /// The ranks of the student and of a teacher that has a world of its own. They wait for each
  /// other without a limit while both live. Absent without such a teacher.
  std::optional<comm::ProcessGroup> teacher_link = {};
  /// How long this rank has waited for others so far, those of `teacher_link` included.
  std::function<double()> waited_seconds;
  /// What this rank has moved in groups of ranks so far, those of `teacher_link` included.
  std::function<comm::Traffic()> traffic;
  Reporter* reporter = nullptr;
  Reporter* console = nullptr;  ///< as `reporter`, but its warnings are not added to `events`
  TraceSink* trace = nullptr;   ///< may be null
  at::Device device = at::kCPU;
  const tensor::CudaRuntime* cuda = nullptr;  ///< set when device is a CUDA device
  std::string resolved_recipe;                ///< YAML text, saved in every checkpoint
  std::string shown_recipe;                   ///< the same without values of the environment
  loggers::RunEvents* events = nullptr;       ///< what happens to the run
  BackgroundTask* background = nullptr;       ///< for saves while training goes on
  RunTrackers* trackers = nullptr;            ///< get the run's numbers
  Json record;                                ///< of the run, as begin_run_record() made it
  RunPlan* plan = nullptr;                    ///< for run.json; null: the rank records none
  uint64_t program_bytes = 0;   ///< on a CPU, what the process held before the session; else 0
  PhaseTimes* times = nullptr;  ///< of the process's start; for the session alone
  bool shows_timings = false;   ///< prints `times`, and what a step takes

  EnginePlace place() const {
    return {.device = device, .trace = trace, .reporter = reporter, .times = times};
  }
};

}  // namespace automodel::recipes
