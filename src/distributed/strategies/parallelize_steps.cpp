#include "distributed/strategies/parallelize_steps.h"

#include "core/error.h"
#include "distributed/context/context_parallel.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/engine/split_engine.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/tensor/tp_layer_plan.h"
#include "nn/loss_head.h"

namespace automodel::distributed {

std::optional<SplitModule> split_over_tp(const ParallelModel& model, const comm::ProcessGroup& tp,
                                         const TpPlanChoice& choice, bool sequence_parallel) {
  if (tp.size() == 1) return std::nullopt;
  validate_tp_mesh(model.facts, tp.size());
  const TpShardPlan plan = get_parallel_plan(model.facts, sequence_parallel, choice);
  const TpLayerPlan layers =
      plan_layers(model.module, model.facts, plan,
                  {.tp_size = tp.size(), .sequence_parallel = sequence_parallel});
  if (!layers.findings.empty()) throw UserError(layers.findings[0].text);
  SplitModule split = split_module(model.module, model.facts, layers, tp, sequence_parallel);
  if (split.loss_head) model.set_loss_head(split.loss_head);
  return split;
}

const tensor::KeyMap& keys_of(const ParallelModel& model, const std::optional<SplitModule>& split) {
  return split ? split->keys : model.facts.keys;
}

void spread_attention(const ParallelModel& model, const DeviceMesh& mesh, const std::string& axis,
                      CpRotateMethod method) {
  if (!model.set_attention_core || !mesh.has(axis) || mesh.size(axis) == 1) return;
  model.set_attention_core(make_context_parallel_core(mesh.group(axis), method));
}

std::unique_ptr<Engine> give_memory(const ParallelModel& model, const tensor::KeyMap& keys,
                                    const ShardingGroups& groups, const ShardingOptions& options,
                                    const UnitChoices& choices, bool keeps) {
  const int num_ranks = groups.all.size();
  if (num_ranks > 1 || choices.has_split_experts) {
    auto* logits = dynamic_cast<nn::GivesLogits*>(&model.module);
    // The root returns a loss, so the output dtype is applied to the logits.
    if (logits != nullptr && options.output_dtype) logits->set_logits_dtype(*options.output_dtype);
    auto engine = std::make_unique<ShardedEngine>(model.module, keys, groups,
                                                  fitted_to(options, num_ranks), choices);
    if (keeps) engine->keep_between_micro_batches();
    return engine;
  }
  return std::make_unique<DataParallel>(
      model.module, model.facts.plan, keys, groups.all,
      DataParallelOptions{.device = options.device, .gradient_check = options.gradient_check});
}

std::unique_ptr<Engine> join_ranks(std::unique_ptr<Engine> engine, const comm::ProcessGroup& tp,
                                   const std::optional<SplitModule>& split) {
  if (!split) return engine;
  return std::make_unique<SplitEngine>(std::move(engine), tp, *split);
}

}  // namespace automodel::distributed
