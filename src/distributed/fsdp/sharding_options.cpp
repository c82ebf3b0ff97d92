#include "distributed/fsdp/sharding_options.h"

#include <algorithm>

#include "core/error.h"
#include "tensor/dtype.h"

namespace automodel::distributed {

ShardingOptions fitted_to(ShardingOptions options, int group_size) {
  if (group_size > 1) return options;
  options.parameters = Placement::kReplicated;
  if (options.defers_gradients) options.gradients = Placement::kReplicated;
  return options;
}

void apply_policy(const MixedPrecisionPolicy& policy, ShardingOptions& options) {
  const auto dtype = [](const std::optional<std::string>& name) -> std::optional<at::ScalarType> {
    if (!name) return std::nullopt;
    const auto parsed = tensor::parse_dtype(*name);
    if (!parsed) throw UserError(cat("distributed.mp_policy: unknown dtype '", *name, "'"));
    return parsed;
  };
  options.param_dtype = dtype(policy.param_dtype);
  options.reduce_dtype = dtype(policy.reduce_dtype);
  options.output_dtype = dtype(policy.output_dtype);
  options.casts_inputs = policy.cast_forward_inputs;
}

ShardingOptions sharding_options(const FSDP2Config& config, at::Device device) {
  ShardingOptions options;
  options.device = device;
  apply_policy(config.mp_policy.value_or(default_mp_policy()), options);
  options.reshard_after_forward = config.reshard_after_forward;
  options.defers_gradients = config.defer_fsdp_grad_sync;
  options.offload_policy = config.offload_policy;
  if (config.enable_fsdp2_prefetch) {
    options.forward_prefetch_depth = config.fsdp2_forward_prefetch_depth;
    options.backward_prefetch_depth = config.fsdp2_backward_prefetch_depth;
  } else if (!device.is_cpu()) {
    options.forward_prefetch_depth = 1;  // backward has its own: prefetches_implicitly
  }
  return options;
}

std::optional<at::ScalarType> own_head_dtype(const MoEParallelizerConfig& moe) {
  if (!moe.lm_head_precision) return std::nullopt;
  const auto dtype = tensor::parse_dtype(*moe.lm_head_precision);
  return dtype == at::kFloat ? dtype : std::nullopt;
}

}  // namespace automodel::distributed
