#include "recipes/build_engine.h"

#include <algorithm>

#include "distributed/data_parallel.h"
#include "distributed/diffusion_gemma_strategy.h"
#include "distributed/parallelizer.h"
#include "distributed/recompute.h"
#include "nn/product_dtype.h"
#include "recipes/tp_request.h"
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

distributed::ParallelizeOptions fsdp2_options(const Recipe& recipe, const EnginePlace& place) {
  const distributed::FSDP2Config& config = recipe.distributed.fsdp2;
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
  return options;
}

distributed::NvfsdpOptions megatron_options(const Recipe& recipe, const EnginePlace& place) {
  distributed::NvfsdpOptions options =
      distributed::nvfsdp_options(recipe.distributed.megatron_fsdp);
  options.activation_checkpointing = recomputation_of(recipe.distributed);
  options.cp_rotate_method = recipe.distributed.context.cp_rotate_method;
  options.device = place.device;
  options.trace = place.trace;
  return options;
}

std::unique_ptr<Engine> build_replicas(const Recipe& recipe, models::CausalLM& model,
                                       const comm::ProcessGroup& group, const EnginePlace& place) {
  const nn::ParallelPlan plan = model.parallel_plan();
  distributed::recompute_blocks(model, plan, recomputation_of(recipe.distributed));
  distributed::DataParallelOptions options;
  options.device = place.device;
  options.trace = place.trace;
  if (const auto cap = recipe.distributed.ddp.bucket_cap_mb) {
    options.bucket_bytes = *cap << 20;
    options.first_bucket_bytes = std::min(options.first_bucket_bytes, options.bucket_bytes);
  }
  return std::make_unique<distributed::DataParallel>(model, plan, model.key_map(), group, options);
}

}  // namespace

distributed::ParallelModel parallel_model(models::CausalLM& model) {
  return {model, tp_model(model),
          [&model](std::shared_ptr<nn::LossHead> head) { model.set_loss_head(std::move(head)); },
          [&model](std::shared_ptr<nn::AttentionCore> core) {
            model.set_attention_core(std::move(core));
          }};
}

std::unique_ptr<Engine> build_engine(const Recipe& recipe, models::CausalLM& model,
                                     const distributed::DeviceMesh& mesh,
                                     const EnginePlace& place) {
  const distributed::ParallelModel parallel = parallel_model(model);
  if (const auto name = distributed::autocast_dtype(recipe.distributed)) {
    nn::set_product_dtype(model, tensor::parse_dtype(*name).value());
  }
  switch (recipe.distributed.strategy) {
    case distributed::Strategy::kFsdp2: {
      const auto& moe = recipe.distributed.moe;
      if (moe && moe->lm_head_precision && parallel.facts.plan.head.empty()) {
        place.reporter->warning(
            "distributed.moe.lm_head_precision has no effect: the head is the embedding");
      }
      distributed::StrategyRegistry strategies;
      distributed::register_diffusion_gemma_parallel_strategy(strategies);
      return distributed::fsdp2_strategy_parallelize(parallel, mesh, fsdp2_options(recipe, place),
                                                     strategies);
    }
    case distributed::Strategy::kMegatronFsdp:
      return distributed::nvfsdp_strategy_parallelize(
          parallel, mesh, megatron_options(recipe, place), *place.reporter);
    case distributed::Strategy::kDdp:
      break;
  }
  return build_replicas(recipe, model, mesh.group("dp"), place);
}

}  // namespace automodel::recipes
