#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/parallel_plan.h"

namespace automodel::distributed {

/// fqns of the modules of every stage, in forward order.
using StageModules = std::vector<std::vector<std::string>>;

struct StageCountRequest {
  int64_t num_layers = 0;
  std::optional<int64_t> layers_per_stage = {};
  int64_t pp_size = 1;
  bool is_multi_stage = false;  ///< whether the schedule gives a rank several stages
  std::optional<std::string> rounding =
      {};  ///< round_virtual_stages_to_pp_multiple: "up" or "down"
};

/// Number of stages on all ranks: ceil(layers / layers_per_stage), rounded to a multiple of the
/// ranks. Without layers_per_stage it is one per rank, or two for multi-stage schedules. Throws
/// UserError with upstream's texts.
int64_t calculate_virtual_stages(const StageCountRequest& request);

/// Divides the layers evenly; the first stages get one more when there is a remainder. The
/// embedding goes to the first stage, the final norm and the head to the last. Throws UserError for
/// more stages than layers.
StageModules split_into_stages(const nn::ParallelPlan& plan, int64_t num_stages);

/// What is wrong with module lists from a recipe (module_fqns_per_model_part): an unknown module,
/// one that is missing, in two parts or out of order, an empty part; "" when nothing is.
/// "rotary_emb", which every stage has here, may be listed anywhere.
std::string stage_modules_finding(const nn::ParallelPlan& plan, const StageModules& parts);

/// The lists in the form of split_into_stages, without rotary embeddings.
StageModules normalize_stage_modules(const StageModules& parts);

}  // namespace automodel::distributed
