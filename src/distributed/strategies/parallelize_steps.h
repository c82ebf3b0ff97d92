#pragma once

#include <memory>
#include <optional>
#include <string>

#include "distributed/engine/sharded_engine.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/settings/distributed_config.h"
#include "distributed/strategies/parallel_model.h"
#include "distributed/tensor/split_module.h"

namespace automodel::distributed {

// The steps that strategies share, in the order in which they are taken: the hooks of each step
// surround those of the previous one.

/// Splits the model over the tensor-parallel ranks; nothing for one rank. Throws UserError when the
/// heads or the plan do not fit.
std::optional<SplitModule> split_over_tp(const ParallelModel& model, const comm::ProcessGroup& tp,
                                         const TpPlanChoice& choice, bool sequence_parallel);

/// The names of a model's parameters, or of this rank's parts when it was split.
const tensor::KeyMap& keys_of(const ParallelModel& model, const std::optional<SplitModule>& split);

/// Extends the model's attention over the context-parallel ranks, if the mesh has the axis.
void spread_attention(const ParallelModel& model, const DeviceMesh& mesh, const std::string& axis,
                      CpRotateMethod method);

/// Allocates the model's memory: sharded, or replicated when one rank would hold everything.
/// `keeps`: units stay gathered between the micro-batches of a step.
std::unique_ptr<Engine> give_memory(const ParallelModel& model, const tensor::KeyMap& keys,
                                    const ShardingGroups& groups, const ShardingOptions& options,
                                    const UnitChoices& choices = {}, bool keeps = false);

/// Combines the engine of a rank's part with those of the other tensor-parallel ranks.
std::unique_ptr<Engine> join_ranks(std::unique_ptr<Engine> engine, const comm::ProcessGroup& tp,
                                   const std::optional<SplitModule>& split);

}  // namespace automodel::distributed
