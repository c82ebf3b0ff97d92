#include "distributed/strategies/nvfsdp_options.h"

#include <algorithm>

#include "core/error.h"
#include "distributed/fsdp/gradient_check.h"
#include "distributed/strategies/nvfsdp.h"

namespace automodel::distributed {

namespace {

/// The names of zero_dp_strategy 0 to 3.
const std::vector<std::string> kZeroStrategies = {"no_shard", "optim", "optim_grads",
                                                  "optim_grads_params"};

struct ZeroPlacement {
  Placement parameters;
  Placement gradients;
};

ZeroPlacement placement_of(const std::string& strategy) {
  using enum Placement;
  if (strategy == "no_shard" || strategy == "optim") return {kReplicated, kReplicated};
  if (strategy == "optim_grads") return {kReplicated, kSharded};
  if (strategy == "params") return {kSharded, kReplicated};
  if (strategy == "optim_grads_params" || strategy == "grads_params") return {kSharded, kSharded};
  throw UserError(cat("unknown data_parallel_sharding_strategy '", strategy, "': one of ",
                      join(kZeroStrategies, ", "), ", params, grads_params"));
}

GradientCheck gradient_check_of(const MegatronFSDPConfig& config) {
  const bool is_checked = config.check_for_nan_in_grad || config.report_nan_in_param_grad;
  return is_checked ? GradientCheck::kNonFinite : GradientCheck::kNone;
}

}  // namespace

std::string data_parallel_sharding_strategy(const NvfsdpOptions& options) {
  for (const auto& name :
       {options.data_parallel_sharding_strategy, options.config.data_parallel_sharding_strategy}) {
    if (name) return *name;
  }
  const int64_t number = options.config.zero_dp_strategy;
  if (number < 0 || number >= static_cast<int64_t>(kZeroStrategies.size())) {
    throw UserError(cat("zero_dp_strategy takes 0, 1, 2 or 3, found ", number));
  }
  return kZeroStrategies[static_cast<size_t>(number)];
}

ShardingOptions nvfsdp_sharding(const NvfsdpOptions& options) {
  const MegatronFSDPConfig& config = options.config;
  const auto [parameters, gradients] = placement_of(data_parallel_sharding_strategy(options));
  ShardingOptions sharding;
  sharding.device = options.device;
  sharding.trace = options.trace;
  sharding.border_numel = options.border_numel;
  sharding.parameters = parameters;
  sharding.gradients = gradients;
  // Sharded gradients are added up in this rank's range after each reduction.
  sharding.defers_gradients = gradients == Placement::kReplicated;
  if (config.preserve_fp32_weights) sharding.main_dtype = at::kFloat;
  if (config.grad_reduce_in_fp32) {
    sharding.reduce_dtype = at::kFloat;
    sharding.gradient_dtype = at::kFloat;
  }
  sharding.scaling = config.calculate_per_token_loss ? GradientScaling::kSum
                     : config.average_in_collective  ? GradientScaling::kAverage
                                                     : GradientScaling::kDivideThenSum;
  sharding.reshard_after_forward = true;
  sharding.overlaps_reductions = config.overlap_grad_reduce || gradients == Placement::kSharded ||
                                 parameters == Placement::kSharded;
  if (config.overlap_param_gather || parameters == Placement::kSharded) {
    sharding.forward_prefetch_depth = 1;
    sharding.backward_prefetch_depth = 1;
  }
  sharding.gradient_check = gradient_check_of(config);
  return sharding;
}

NvfsdpOptions nvfsdp_options(const MegatronFSDPConfig& config, const std::string& architecture,
                             const ClassTable& classes) {
  NvfsdpOptions options;
  options.config = config;
  options.classes = classes;
  if (!options.config.megatron_fsdp_unit_modules) {
    const auto layer = classes.path_of(classes.of_model(architecture).layer, "layer");
    if (layer) options.config.megatron_fsdp_unit_modules = {*layer};
  }
  return options;
}

bool shards_nothing(const MegatronFSDPConfig& config) {
  NvfsdpOptions options;
  options.config = config;
  return data_parallel_sharding_strategy(options) == kZeroStrategies[0];
}

ShardingOptions sharding_options(const MegatronFSDPConfig& config, at::Device device) {
  NvfsdpOptions options;
  options.config = config;
  options.device = device;
  return nvfsdp_sharding(options);
}

PlannedUnits chosen_units(const ParallelModel& model, const NvfsdpOptions& options) {
  const auto& classes = options.config.megatron_fsdp_unit_modules;
  if (!classes || classes->empty()) return {};
  SilentReporter silent;
  Reporter& reporter = options.reporter != nullptr ? *options.reporter : silent;
  const nn::ParallelPlan& plan = model.facts.plan;
  const std::string& architecture = model.facts.architecture;
  const auto [layer, experts] = options.classes.of_model(architecture);
  PlannedUnits units;
  bool has_layers = false;
  bool has_experts = false;
  for (const ImportedClass& unit : import_classes_from_paths(*classes, reporter, options.classes)) {
    const bool is_layer = unit.name == layer;
    const bool is_experts = unit.name == experts;
    has_layers = has_layers || is_layer;
    has_experts = has_experts || is_experts;
    if (unit.path != "torch.nn.Embedding") {
      if (is_layer || is_experts) continue;
      reporter.warning(
          cat("unit module ", unit.path, ": no module of ", architecture, " (", unit.kind, ")"));
      continue;
    }
    if (plan.head.empty() || plan.embedding.empty()) {
      throw UserError(cat("torch.nn.Embedding cannot be a unit of ", architecture,
                          ", whose embedding is its output head too"));
    }
    units.tables.embedding = plan.embedding;
  }
  if (has_layers) units.blocks = plan.blocks;
  if (has_experts && !has_layers) units.experts = plan.expert_modules;
  if (units.blocks.empty() && units.experts.empty() && units.tables.embedding.empty()) {
    const auto path = [&](const std::string& name, const char* kind) {
      return options.classes.path_of(name, kind).value_or(name);
    };
    throw UserError(cat(
        "none of the unit modules is in ", architecture, ", whose layers are of class ",
        path(layer, "layer"),
        plan.expert_modules.empty() ? "" : cat(" and experts of class ", path(experts, "experts")),
        "; without the key the layers are units, and [] makes the whole model one"));
  }
  return units;
}

}  // namespace automodel::distributed
