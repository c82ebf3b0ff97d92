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
  bool is_multi_stage = false;  ///< the schedule gives a rank several stages
  std::optional<std::string> rounding =
      {};  ///< round_virtual_stages_to_pp_multiple: "up" or "down"
};

/// Stages in all ranks: ceil(layers / layers_per_stage), rounded to a multiple of the ranks; one a
/// rank, or two under schedules of several, when layers_per_stage is absent. UserError with
/// upstream's texts.
int64_t calculate_virtual_stages(const StageCountRequest& request);

/// Layers divided evenly, one more for the first stages where that does not come out; the embedding
/// goes to the first stage, the final norm and the head to the last. UserError for more stages than
/// layers.
StageModules split_into_stages(const nn::ParallelPlan& plan, int64_t num_stages);

/// What is wrong with lists of a person (module_fqns_per_model_part): a name that the model has
/// not, a module that is missing, in two parts or out of order, an empty part; "" when nothing is.
/// "rotary_emb", which every stage has here, may be listed anywhere.
std::string stage_modules_finding(const nn::ParallelPlan& plan, const StageModules& parts);

/// Such lists as split_into_stages gives them, without rotary embeddings.
StageModules normalize_stage_modules(const StageModules& parts);

}  // namespace automodel::distributed
