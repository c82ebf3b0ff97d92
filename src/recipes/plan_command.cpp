#include "recipes/plan_command.h"

#include <algorithm>
#include <iostream>

#include "comm/imagined_group.h"
#include "config/load.h"
#include "core/error.h"
#include "core/file.h"
#include "distributed/context_split.h"
#include "distributed/tensor_parallel.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "recipes/plan_text.h"
#include "recipes/recipe.h"
#include "recipes/session_checkpoint.h"
#include "recipes/tp_request.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

/// The dtype that a run stores parameters in; without weights here, the one config.json names.
at::ScalarType storage_dtype(const ModelPlan& model) {
  if (model.dtype) return *model.dtype;
  const bool has_weights = path_exists(path_join(model.folder, "model.safetensors")) ||
                           path_exists(path_join(model.folder, "model.safetensors.index.json"));
  if (has_weights) return checkpoint_dtype(model.folder).value_or(at::kFloat);
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (const auto dtype = tensor::parse_dtype(model.hf_config.get(key, ""))) return *dtype;
  }
  return at::kFloat;
}

/// A whole number below the dataset section.
std::optional<int64_t> dataset_number(const Recipe& recipe, const char* key) {
  const config::Node* node = recipe.dataset.node.find(key);
  if (node == nullptr || !node->is_scalar()) return std::nullopt;
  return parse_int(node->text());
}

nn::ActivationShape batch_shape(const Recipe& recipe, const PlanRequest& request,
                                const models::ModelDims& dims) {
  constexpr int64_t kUsualLength = 2048;
  nn::ActivationShape shape;
  shape.num_sequences =
      dataset_number(recipe, "batch_size").value_or(recipe.step_scheduler.local_batch_size);
  shape.sequence_length = std::min(dims.max_positions, kUsualLength);
  for (const char* key : {"seq_len", "seq_length"}) {
    if (const auto length = dataset_number(recipe, key)) shape.sequence_length = *length;
  }
  if (request.sequence_length) shape.sequence_length = *request.sequence_length;
  return shape;
}

/// The keys and values of other context-parallel ranks while a block attends, and in backward their
/// gradients in float32.
void add_travelling_keys(const Recipe& recipe, const models::ModelDims& dims,
                         const nn::ActivationShape& shape, int cp_size,
                         nn::ActivationSizes& activations) {
  if (cp_size == 1) return;
  const bool is_ring =
      recipe.distributed.context.cp_rotate_method == distributed::CpRotateMethod::kAllToAll;
  const int64_t num_kv_heads = dims.num_kv_heads / shape.num_head_parts;
  const int64_t own = shape.tokens() * 2 * num_kv_heads * dims.head_dim;
  const int64_t num_shares = is_ring ? 2 : cp_size + 1;  // the own ones as they are sent
  activations.block_forward += num_shares * own * shape.element_size;
  activations.block_backward += num_shares * own * (shape.element_size + 4);
}

/// The equal parts of a block's two pairs of projections, by the styles of the second ones.
void count_parts(const nn::ParallelPlan& model, const distributed::TpLayerPlan& layers,
                 int64_t tp_size, nn::ActivationShape& shape) {
  for (const auto& [fqn, style] : layers.styles) {
    const bool takes_part = style.kind == distributed::StyleKind::kRowwise &&
                            style.input == distributed::StyleLayout::kShardLast;
    for (const auto& [first, second] : model.tp_pairs) {
      if (!takes_part || !distributed::matches_module(second, fqn)) continue;
      const bool is_attention = second.find("attention") != std::string::npos;
      (is_attention ? shape.num_head_parts : shape.num_mlp_parts) = tp_size;
    }
  }
  if (layers.splits_vocabulary) shape.num_vocab_parts = tp_size;
}

/// Gives the model the sizes of a tensor-parallel rank. Ranks differ in the rows of an uneven
/// vocabulary only, for which all keep room alike.
void split_for_a_rank(const Recipe& recipe, models::CausalLM& model, RecipePlan& plan) {
  const TpRequest request = tp_request(recipe);
  const distributed::TpModel what = tp_model(model);
  const int tp_size = static_cast<int>(request.size);
  plan.sequence_parallel = request.sequence_parallel;
  plan.tp_rules = distributed::get_parallel_plan(what, request.sequence_parallel, request.plan);
  const auto layers = distributed::plan_layers(
      model, what, plan.tp_rules,
      {.tp_size = tp_size, .sequence_parallel = request.sequence_parallel});
  count_parts(plan.parallel, layers, tp_size, plan.shape);
  if (request.sequence_parallel) plan.shape.num_sequence_parts = tp_size;
  distributed::split_module(model, what, layers, comm::imagined_group("tp", 0, tp_size),
                            request.sequence_parallel);
}

RecipePlan make_plan(const Recipe& recipe, const PlanRequest& request, int64_t world_size) {
  RecipePlan plan;
  plan.recipe = request.recipe_path;
  plan.sizes = mesh::infer_sizes(distributed::size_request(recipe.distributed.sizes), world_size);
  plan.strategy = distributed::strategy_name(recipe.distributed.strategy);
  plan.dtype = storage_dtype(recipe.model);
  const auto model = models::build_causal_lm(recipe.model.hf_config, plan.dtype);
  plan.architecture = model->architecture();
  plan.parallel = model->parallel_plan();
  plan.options = distributed::memory_options(recipe.distributed, plan.sizes);
  plan.options.num_optimizer_states = recipe.optimizer.num_states;
  const int64_t per_micro_batch = recipe.step_scheduler.local_batch_size * plan.sizes.dp();
  plan.options.num_micro_batches =
      std::max<int64_t>(recipe.step_scheduler.global_batch_size / per_micro_batch, 1);
  plan.shape = batch_shape(recipe, request, model->dims());
  plan.shape.element_size = static_cast<int64_t>(c10::elementSize(plan.computed_dtype()));
  for (const at::Tensor& parameter : model->parameters()) {
    plan.num_parameters += parameter.numel();
    plan.num_trained += parameter.requires_grad() ? parameter.numel() : 0;
  }
  if (plan.sizes.tp > 1) split_for_a_rank(recipe, *model, plan);
  if (plan.options.sharding && recipe.distributed.strategy == distributed::Strategy::kFsdp2) {
    plan.options.tables = distributed::untied_tables(*model, plan.parallel);
  }
  const distributed::SequenceShare share{0, plan.sizes.cp};
  plan.whole_length = plan.shape.sequence_length;
  if (share.size > 1) {
    plan.shape.is_part = true;
    plan.shape.sequence_length = distributed::padded_length(plan.whole_length, share) / share.size;
  }
  nn::ActivationSizes activations = model->activation_sizes(plan.shape);
  add_travelling_keys(recipe, model->dims(), plan.shape, share.size, activations);
  plan.memory = distributed::plan_memory(
      distributed::group_parameters(*model, plan.parallel, plan.options.tables), plan.options,
      activations);
  if (plan.sizes.pp > 1) {
    plan.pipeline = plan_pipeline(recipe, {plan.dtype, plan.shape, plan.options});
  }
  return plan;
}

/// What this version cannot tell the bytes of.
void check_plannable(const Recipe& recipe) {
  const auto& sizes = recipe.distributed.sizes;
  if (recipe.dllm) {
    throw UnsupportedError(
        cat("recipe ", recipe.class_name,
            ": plans of models whose layers run several times a step are not in this version"));
  }
  if (sizes.ep_size.value_or(1) > 1) {
    throw UnsupportedError(cat("distributed.ep_size ", *sizes.ep_size,
                               ": plans of expert parallelism are not in this version"));
  }
  if (sizes.tp_size.value_or(1) > 1 && sizes.pp_size.value_or(1) > 1) {
    throw UnsupportedError(cat("distributed.tp_size ", *sizes.tp_size,
                               ": plans of stages that are split are not in this version"));
  }
}

}  // namespace

int run_plan_command(const PlanRequest& request) {
  const config::Document document = config::load_recipe(request.recipe_path, request.overrides);
  config::Diagnostics diagnostics(document.sources);
  const Recipe recipe = read_recipe(document.root, diagnostics);
  const int64_t ranks = request.world_size.value_or(fitting_world_size(recipe));
  check_run(recipe, {.world_size = ranks, .loads_tokenizers = false, .looks_at_data = false},
            diagnostics);
  using config::Severity;
  if (diagnostics.count(Severity::kError) > 0) diagnostics.throw_if_errors();
  if (!recipe.model.hf_config.is_object()) {
    throw InputError(cat("model '", recipe.model.source,
                         "' is not on this machine: a plan needs "
                         "its config.json"));
  }
  check_plannable(recipe);
  const RecipePlan plan = make_plan(recipe, request, ranks);
  std::cout << (request.is_json ? plan_json(plan).dump(2) + "\n" : plan_text(plan));
  const auto missing = diagnostics.render_all(Severity::kUnsupported);
  for (const std::string& text : missing) std::cerr << text << "\n";
  return missing.empty() ? 0 : static_cast<int>(ExitCode::kUnsupported);
}

}  // namespace automodel::recipes
