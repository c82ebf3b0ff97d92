#include "recipes/build/build_engine.h"

#include <algorithm>

#include "distributed/strategies/diffusion_gemma_strategy.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "distributed/strategies/parallelizer.h"
#include "nn/product_dtype.h"
#include "recipes/build/tp_request.h"
#include "recipes/read/targets_distributed.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

using distributed::ActivationCheckpointingMode;
using distributed::DistributedSetup;
using distributed::Engine;

ActivationCheckpointingMode recomputation_of(const DistributedSetup& setup) {
  const bool is_selected =
      distributed::has_language_scope(distributed::activation_checkpointing_scope(setup));
  return is_selected ? distributed::activation_checkpointing_mode(setup)
                     : ActivationCheckpointingMode::kOff;
}

/// Passes no reporter: reading and checking the recipe has already printed these warnings.
StrategyOptions options_of(const distributed::FSDP2Config& config, const Recipe& recipe,
                           const std::string&, const EnginePlace& place) {
  distributed::ParallelizeOptions options;
  options.mp_policy = config.mp_policy;
  options.offload_policy = config.offload_policy;
  options.sequence_parallel = config.sequence_parallel;
  options.activation_checkpointing = recomputation_of(recipe.distributed);
  options.tp_shard_plan = tp_request(recipe).plan;
  options.cp_rotate_method = recipe.distributed.context.cp_rotate_method;
  options.enable_async_tensor_parallel = config.enable_async_tensor_parallel;
  options.moe = recipe.distributed.moe.value_or(distributed::MoEParallelizerConfig{});
  options.enable_fsdp_optimizations = recipe.model.enables_fsdp_optimizations;
  options.sharding = distributed::sharding_options(config, place.device);
  options.sharding.trace = place.trace;
  options.sharding.border_numel = recipe.optimizer.border_numel;
  return options;
}

StrategyOptions options_of(const distributed::MegatronFSDPConfig& config, const Recipe& recipe,
                           const std::string& architecture, const EnginePlace& place) {
  distributed::NvfsdpOptions options =
      distributed::nvfsdp_options(config, architecture, recipe_classes());
  options.config.activation_checkpointing = recomputation_of(recipe.distributed);
  options.cp_rotate_method = recipe.distributed.context.cp_rotate_method;
  options.device = place.device;
  options.border_numel = recipe.optimizer.border_numel;
  options.trace = place.trace;
  options.optimizer = place.optimizer;
  return options;
}

StrategyOptions options_of(const distributed::DDPConfig& config, const Recipe& recipe,
                           const std::string&, const EnginePlace& place) {
  distributed::ReplicaOptions options;
  options.activation_checkpointing = recomputation_of(recipe.distributed);
  options.replicas.device = place.device;
  options.replicas.trace = place.trace;
  if (const auto cap = config.bucket_cap_mb) {
    options.replicas.bucket_bytes = *cap << 20;
    options.replicas.first_bucket_bytes =
        std::min(options.replicas.first_bucket_bytes, options.replicas.bucket_bytes);
  }
  return options;
}

std::unique_ptr<Engine> parallelize(const distributed::ParallelModel& model,
                                    const distributed::DeviceMesh& mesh,
                                    const distributed::ParallelizeOptions& options,
                                    const distributed::StrategyRegistry& registry) {
  return distributed::fsdp2_strategy_parallelize(model, mesh, options, registry);
}

std::unique_ptr<Engine> parallelize(const distributed::ParallelModel& model,
                                    const distributed::DeviceMesh& mesh,
                                    const distributed::NvfsdpOptions& options,
                                    const distributed::StrategyRegistry& registry) {
  SilentReporter silent;  // checking the recipe has told of unit modules
  return distributed::nvfsdp_strategy_parallelize(model, mesh, options, silent, registry);
}

std::unique_ptr<Engine> parallelize(const distributed::ParallelModel& model,
                                    const distributed::DeviceMesh& mesh,
                                    const distributed::ReplicaOptions& options,
                                    const distributed::StrategyRegistry& registry) {
  return distributed::ddp_strategy_parallelize(model, mesh, options, registry);
}

}  // namespace

distributed::ParallelModel parallel_model(models::CausalLM& model) {
  return {model, tp_model(model),
          [&model](std::shared_ptr<nn::LossHead> head) { model.set_loss_head(std::move(head)); },
          [&model](std::shared_ptr<nn::AttentionCore> core) {
            model.set_attention_core(std::move(core));
          }};
}

distributed::StrategyRegistry strategies() {
  distributed::StrategyRegistry registry;
  distributed::register_diffusion_gemma_parallel_strategy(registry);
  return registry;
}

StrategyOptions strategy_options(const Recipe& recipe, const std::string& architecture,
                                 const EnginePlace& place) {
  return std::visit(
      [&](const auto& config) { return options_of(config, recipe, architecture, place); },
      distributed::distributed_config(recipe.distributed));
}

namespace {

/// Whether a module of this name has a parameter that is trained.
bool trains(const models::CausalLM& model, const std::string& module) {
  for (const auto& item : model.named_parameters()) {
    if (item.key().starts_with(module + ".") && item.value().requires_grad()) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Engine> build_engine(const Recipe& recipe, models::CausalLM& model,
                                     const distributed::DeviceMesh& mesh,
                                     const EnginePlace& place) {
  const distributed::ParallelModel parallel = parallel_model(model);
  if (const auto name = distributed::autocast_dtype(recipe.distributed)) {
    nn::set_product_dtype(model, tensor::parse_dtype(*name).value());
  }
  const auto& moe = recipe.distributed.moe;
  // A pipeline's first stage, which this rank may hold, has no head to tell by.
  const bool is_asked = moe && moe->lm_head_precision && mesh.size("pp") == 1;
  if (is_asked && parallel.facts.plan.head.empty()) {
    place.reporter->warning(
        "distributed.moe.lm_head_precision has no effect: the head is the embedding");
  } else if (is_asked && !trains(model, parallel.facts.plan.head)) {
    place.reporter->warning(
        "distributed.moe.lm_head_precision has no effect: the head is not trained");
  }
  auto engine = std::visit(
      [&](const auto& options) { return parallelize(parallel, mesh, options, strategies()); },
      strategy_options(recipe, parallel.facts.architecture, place));
  // Megatron-FSDP takes the maker as an option and has called it; the others leave it to be called
  // here.
  const bool is_made = recipe.distributed.strategy == distributed::Strategy::kMegatronFsdp;
  if (place.optimizer && !is_made) place.optimizer(*engine);
  return engine;
}

distributed::PlannedUnits planned_units(const Recipe& recipe, models::CausalLM& model) {
  const distributed::ParallelModel parallel = parallel_model(model);
  const distributed::StrategyRegistry registry = strategies();
  return std::visit(
      [&](const auto& options) {
        using Options = std::decay_t<decltype(options)>;
        return registry.get_parallelization_strategy<Options>(parallel.facts.architecture)
            .planned_units(parallel, options);
      },
      strategy_options(recipe, parallel.facts.architecture, {}));
}

}  // namespace automodel::recipes
