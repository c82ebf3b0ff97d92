#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace automodel::recipes {

/// The arguments of `automodel plan`.
struct PlanRequest {
  std::string recipe_path;
  std::vector<std::string> overrides;
  std::optional<int64_t> world_size;       ///< absent: the fewest ranks that the recipe fits
  std::optional<int64_t> sequence_length;  ///< absent: the dataset's, else the model's up to 2048
  std::string device;                      ///< "cpu", "cuda" or "": what a run would choose
  std::string device_memory;               ///< memory that the plan is compared with; "": none
  bool is_json = false;
};

/// Prints what a run of a recipe would need on every rank: the mesh, the units, the bytes of
/// parameters, gradients, optimizer state and of a step at its fullest moment, and a step's
/// collectives; with `device_memory` also whether it fits. Reads the recipe and config.json only,
/// and starts no process. Returns 0, or 6 when the run needs something that is not in this version.
/// Throws UserError for mistakes and UnsupportedError for axes that cannot be planned.
int run_plan_command(const PlanRequest& request);

}  // namespace automodel::recipes
