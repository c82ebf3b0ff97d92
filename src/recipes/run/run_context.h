#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <optional>
#include <string>

#include "comm/process_group.h"
#include "comm/world.h"
#include "core/json.h"
#include "core/phase_times.h"
#include "core/reporter.h"
#include "loggers/run_events.h"
#include "recipes/build/build_engine.h"
#include "recipes/run/background_task.h"
#include "recipes/run/run_plan.h"
#include "recipes/run/run_trackers.h"
#include "tensor/cuda_runtime.h"

namespace automodel::recipes {

/// What a run needs besides the recipe. Everything it points to outlives the session.
struct RunContext {
  comm::World* world = nullptr;
  comm::ProcessGroup group;  ///< all ranks of `world`
  /// The student's ranks and those of its teacher, where each has a world of its own: they wait for
  /// each other as long as both live.
  std::optional<comm::ProcessGroup> teacher_link = {};
  /// How long this rank has waited for others so far, those of `teacher_link` included.
  std::function<double()> waited_seconds;
  Reporter* reporter = nullptr;
  Reporter* console = nullptr;  ///< the same without a record of its warnings in `events`
  TraceSink* trace = nullptr;   ///< may be null
  at::Device device = at::kCPU;
  const tensor::CudaRuntime* cuda = nullptr;  ///< set when device is a CUDA device
  std::string resolved_recipe;                ///< YAML text, saved in every checkpoint
  std::string shown_recipe;                   ///< the same without values of the environment
  loggers::RunEvents* events = nullptr;       ///< what happens to the run
  BackgroundTask* background = nullptr;       ///< for saves while training goes on
  RunTrackers* trackers = nullptr;            ///< who hears its numbers
  Json record;                                ///< begin_run_record()'s
  RunPlan* plan = nullptr;                    ///< for run.json; null: the rank records none
  PhaseTimes* times = nullptr;                ///< since the process's start; the session's alone
  bool shows_timings = false;                 ///< says them at the end of the first step

  EnginePlace place() const {
    return {.device = device, .trace = trace, .reporter = reporter, .times = times};
  }
};

}  // namespace automodel::recipes
