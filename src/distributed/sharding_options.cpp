#include "distributed/sharding_options.h"

#include "core/error.h"
#include "tensor/dtype.h"

namespace automodel::distributed {

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
  apply_policy(config.mp_policy.value_or(MixedPrecisionPolicy{}), options);
  options.reshard_after_forward = config.reshard_after_forward;
  options.defers_gradients = config.defer_fsdp_grad_sync;
  options.offload_policy = config.offload_policy;
  if (config.enable_fsdp2_prefetch) {
    options.forward_prefetch_depth = config.fsdp2_forward_prefetch_depth;
    options.backward_prefetch_depth = config.fsdp2_backward_prefetch_depth;
  }
  return options;
}

ShardingOptions sharding_options(const MegatronFSDPConfig& config, at::Device device) {
  ShardingOptions options;
  options.device = device;
  const int64_t zero = config.zero_dp_strategy;
  options.parameters = zero == 3 ? Placement::kSharded : Placement::kReplicated;
  options.gradients = zero >= 2 ? Placement::kSharded : Placement::kReplicated;
  options.defers_gradients = zero <= 1;  // 2 and 3 add up in the part that a rank keeps
  if (config.preserve_fp32_weights) options.main_dtype = at::kFloat;
  if (config.grad_reduce_in_fp32) {
    options.reduce_dtype = at::kFloat;
    options.gradient_dtype = at::kFloat;
  }
  options.scaling = config.calculate_per_token_loss ? GradientScaling::kSum
                    : config.average_in_collective  ? GradientScaling::kAverage
                                                    : GradientScaling::kDivideThenSum;
  options.reshard_after_forward = true;
  options.overlaps_reductions = config.overlap_grad_reduce || zero >= 2;
  if (config.overlap_param_gather || zero == 3) {
    options.forward_prefetch_depth = 1;
    options.backward_prefetch_depth = 1;
  }
  return options;
}

}  // namespace automodel::distributed
