#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace automodel::recipes {

/// The arguments of `automodel run`.
struct RunOptions {
  std::string recipe_path;
  std::vector<std::string> overrides;
  std::optional<int> num_local_ranks;  ///< ranks to start on this machine
  std::string device;                  ///< "cpu", "cuda" or "": as the recipe says
  std::string trace_path;              ///< Chrome trace; "": none
  std::string log_path;                ///< all ranks' lines are appended to it; "": none
  std::string version = "";            ///< of the program, for run.json
  std::vector<std::string> command;    ///< what was typed, for run.json
  bool shows_timings = false;          ///< of the way to the end of the first step
};

/// Reads, checks and runs a recipe: in this process, in ranks that it starts, or as one rank of
/// those that torchrun, srun or mpirun started. Returns the exit status; throws UserError before
/// any rank is started.
int run_recipe(const RunOptions& options);

}  // namespace automodel::recipes
