#include "distributed/strategies/nvfsdp.h"

#include "core/error.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/recompute/recompute.h"
#include "distributed/strategies/parallelize_steps.h"

namespace automodel::distributed {

const bool HAVE_NVFSDP = true;

namespace {

class MegatronStrategy final : public NvfsdpStrategy {
 public:
  std::unique_ptr<Engine> parallelize(const ParallelModel& model, const DeviceMesh& mesh,
                                      const NvfsdpOptions& options) const override {
    const ShardingOptions sharding = nvfsdp_sharding(options);
    const bool is_whole = data_parallel_sharding_strategy(options) == "no_shard";
    if (options.config.init_fsdp_with_meta_device && is_whole) {
      throw UserError("init_fsdp_with_meta_device needs parameters or an optimizer to shard");
    }
    const UnitChoices choices = units_of(model, options);
    const comm::ProcessGroup& tp = mesh.group(options.tp_mesh_name);
    const bool has_cp = mesh.size(options.cp_mesh_name) > 1;
    const comm::ProcessGroup dp =
        has_cp ? mesh.joined("dp_cp", options.dp_mesh_name, options.cp_mesh_name)
               : mesh.group(options.dp_mesh_name);
    if (mesh.has("dp_replicate") && mesh.size("dp_replicate") > 1) {
      throw UserError("Hybrid-sharding not supported");
    }
    const auto parts = split_over_tp(model, tp, options.tp_shard_plan, false);
    spread_attention(model, mesh, options.cp_mesh_name, options.cp_rotate_method);
    recompute_blocks(model.module, model.facts.plan, options.config.activation_checkpointing);
    const ShardingGroups groups = is_whole
                                      ? ShardingGroups{dp, comm::ProcessGroup::solo("dp_shard"), dp}
                                      : ShardingGroups::of(dp);
    auto engine =
        join_ranks(give_memory(model, keys_of(model, parts), groups, sharding, choices), tp, parts);
    if (options.optimizer) options.optimizer(*engine);
    return engine;
  }

  PlannedUnits planned_units(const ParallelModel& model,
                             const NvfsdpOptions& options) const override {
    return chosen_units(model, options);
  }

 private:
  static UnitChoices units_of(const ParallelModel& model, const NvfsdpOptions& options) {
    PlannedUnits units = chosen_units(model, options);
    UnitChoices choices;
    choices.tables = units.tables;
    choices.modules = units.experts.empty() ? units.blocks : units.experts;
    return choices;
  }
};

}  // namespace

std::unique_ptr<NvfsdpStrategy> make_nvfsdp_strategy() {
  return std::make_unique<MegatronStrategy>();
}

}  // namespace automodel::distributed
