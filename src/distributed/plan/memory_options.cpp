#include "distributed/plan/memory_options.h"

#include <algorithm>

#include "distributed/strategies/nvfsdp_options.h"

namespace automodel::distributed {

namespace {

/// Experts on ranks of their own, of which `num_parts` share the same: as the default strategy sets
/// up everything then, also where one rank holds all the rest.
void split_experts_in(const DistributedSetup& setup, int64_t num_parts, MemoryOptions& options) {
  const MoEParallelizerConfig moe = setup.moe.value_or(MoEParallelizerConfig{});
  ShardingOptions sharding = sharding_options(setup.fsdp2, options.device);
  if (moe.mp_policy) apply_policy(*moe.mp_policy, sharding);
  if (!sharding.reshard_after_forward) sharding.reshard_after_forward = moe.reshard_after_forward;
  options.sharding = sharding;
  options.head_dtype = own_head_dtype(moe);
  options.experts.sharding = fitted_to(sharding, static_cast<int>(num_parts));
  options.experts.num_parts = num_parts;
}

}  // namespace

MemoryOptions memory_options(const DistributedSetup& setup, const mesh::MeshSizes& sizes,
                             at::Device device) {
  MemoryOptions options;
  options.device = device;
  options.recomputes = activation_checkpointing_mode(setup) != ActivationCheckpointingMode::kOff &&
                       has_language_scope(activation_checkpointing_scope(setup));
  if (const auto cap = setup.ddp.bucket_cap_mb) {
    options.bucket_bytes = *cap << 20;
    options.first_bucket_bytes = std::min(options.first_bucket_bytes, options.bucket_bytes);
  }
  const int64_t ranks = int64_t{sizes.dp()} * sizes.cp;
  const int64_t ep = setup.sizes.ep_size.value_or(1);
  if (ep > 1) split_experts_in(setup, sizes.world_size() / sizes.pp / ep, options);
  if (ranks == 1 && ep == 1) return options;
  const MegatronFSDPConfig& megatron = setup.megatron_fsdp;
  switch (setup.strategy) {
    case Strategy::kFsdp2:
      if (!options.sharding) options.sharding = sharding_options(setup.fsdp2, device);
      options.sharding = fitted_to(*options.sharding, static_cast<int>(ranks));
      options.num_parts = int64_t{sizes.dp_shard} * sizes.cp;
      options.num_replicas = sizes.dp_replicate;
      break;
    case Strategy::kMegatronFsdp:
      options.sharding = sharding_options(megatron, device);
      (shards_nothing(megatron) ? options.num_replicas : options.num_parts) = ranks;
      break;
    case Strategy::kDdp:
      options.num_replicas = ranks;
      break;
  }
  return options;
}

}  // namespace automodel::distributed
