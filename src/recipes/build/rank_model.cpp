#include "recipes/build/rank_model.h"

#include "comm/groups/imagined_group.h"
#include "distributed/expert/expert_parallel.h"
#include "distributed/tensor/tp_layer_plan.h"
#include "recipes/build/tp_request.h"

namespace automodel::recipes {

namespace {

/// Sets the number of parts of a block's attention and MLP, from the styles of their second layers.
void count_layer_parts(const nn::ParallelPlan& model, const distributed::TpLayerPlan& layers,
                       int64_t tp_size, nn::ActivationShape& shape) {
  for (const auto& [fqn, style] : layers.styles) {
    const bool takes_part = style.kind == distributed::StyleKind::kRowwise &&
                            style.input == distributed::StyleLayout::kShardLast;
    for (const nn::TpPair& pair : model.tp_pairs) {
      if (!takes_part || !distributed::matches_module(pair.second, fqn)) continue;
      const bool is_attention = pair.branch == nn::BlockBranch::kAttention;
      (is_attention ? shape.num_head_parts : shape.num_mlp_parts) = tp_size;
    }
  }
  if (layers.splits_vocabulary) shape.num_vocab_parts = tp_size;
}

}  // namespace

int64_t expert_ranks(const Recipe& recipe) {
  return recipe.distributed.sizes.ep_size.value_or(1);
}

RankSplit split_for_a_rank(const Recipe& recipe, const mesh::MeshSizes& sizes,
                           models::CausalLM& model) {
  const TpRequest request = tp_request(recipe);
  const distributed::TpModel what = tp_model(model);
  const comm::ProcessGroup tp = comm::imagined_group("tp", 0, sizes.tp);
  RankSplit split;
  split.keys = what.keys;
  if (sizes.tp > 1) {
    split.tp_rules = distributed::get_parallel_plan(what, request.sequence_parallel, request.plan);
    split.layers = distributed::plan_layers(
        model, what, split.tp_rules,
        {.tp_size = sizes.tp, .sequence_parallel = request.sequence_parallel});
    split.keys =
        distributed::split_module(model, what, split.layers, tp, request.sequence_parallel).keys;
  }
  const int ep = static_cast<int>(expert_ranks(recipe));
  if (ep > 1) {
    const comm::ProcessGroup one = comm::imagined_group("tp", 0, 1);
    split.keys = distributed::split_experts(
                     model, what.plan, split.keys,
                     {comm::imagined_group("ep", 0, ep), request.sequence_parallel ? one : tp})
                     .keys;
  }
  return split;
}

void count_parts(const Recipe& recipe, const mesh::MeshSizes& sizes, const nn::ParallelPlan& model,
                 const RankSplit& split, nn::ActivationShape& shape) {
  const bool splits_sequence = sizes.tp > 1 && tp_request(recipe).sequence_parallel;
  if (sizes.tp > 1) count_layer_parts(model, split.layers, sizes.tp, shape);
  if (splits_sequence) shape.num_sequence_parts = sizes.tp;
  shape.num_expert_ranks = expert_ranks(recipe);
  shape.num_same_token_ranks = splits_sequence ? 1 : sizes.tp;
}

}  // namespace automodel::recipes
