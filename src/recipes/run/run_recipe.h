#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace automodel::recipes {

/// What was asked of `automodel run`.
struct RunOptions {
  std::string recipe_path;
  std::vector<std::string> overrides;
  std::optional<int> num_local_ranks;  ///< ranks to start here
  std::string device;                  ///< "cpu", "cuda" or "": whatever is there
  std::string trace_path;              ///< Chrome trace; "": none
  std::string log_path;                ///< file that all ranks' lines are appended to; "": none
};

/// Reads, checks and runs a recipe: in this process, in ranks that it starts, or as one rank of a
/// world that torchrun, srun or mpirun started. Returns the exit status; throws UserError before
/// any rank exists.
int run_recipe(const RunOptions& options);

}  // namespace automodel::recipes
