#include "recipes/plan/make_plan.h"

#include <algorithm>

#include "distributed/context/context_split.h"
#include "models/block_denoiser.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "recipes/build/base_weights.h"
#include "recipes/build/build_engine.h"
#include "recipes/build/build_model.h"
#include "recipes/build/rank_model.h"
#include "recipes/build/tensor_roles.h"
#include "recipes/build/tp_request.h"
#include "recipes/read/read_distillation.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

/// A whole number of a dataset's section.
std::optional<int64_t> dataset_number(const DatasetSection& section, const char* key) {
  const config::Node* node = section.node.find(key);
  if (node == nullptr || !node->is_scalar()) return std::nullopt;
  return node->int_value();
}

/// The tokens of a dataset's longest samples, as far as its section says.
std::optional<int64_t> length_of(const DatasetSection& section) {
  const auto most = section.plan ? section.plan->most_tokens() : std::nullopt;
  if (most) return most;
  const auto length = dataset_number(section, "seq_length");
  return length ? length : dataset_number(section, "seq_len");
}

/// The tokens of the longest samples that a recipe trains on; `usual` where a section says nothing.
int64_t longest_sample(const Recipe& recipe, int64_t usual) {
  int64_t longest = 0;
  if (recipe.model.makes_embeddings && recipe.dataset.plan != nullptr) {
    const auto format = recipe.texts.value_or(datasets::BiEncoderCollatorConfig{});
    return format.q_max_len + recipe.dataset.plan->num_passages() * format.p_max_len;
  }
  for (const DatasetSection* section : recipe.dataset.single_sections()) {
    longest = std::max(longest, length_of(*section).value_or(usual));
  }
  return longest;
}

nn::ActivationShape batch_shape(const Recipe& recipe, const PlannedPlace& place,
                                const models::ModelDims& dims) {
  constexpr int64_t kUsualLength = 2048;
  nn::ActivationShape shape;
  shape.num_sequences =
      dataset_number(recipe.dataset, "batch_size").value_or(recipe.step_scheduler.local_batch_size);
  shape.sequence_length = longest_sample(recipe, std::min(dims.max_positions, kUsualLength));
  if (recipe.packing) shape.sequence_length = recipe.packing->pack_size;
  if (place.sequence_length) shape.sequence_length = *place.sequence_length;
  if (recipe.dllm && recipe.dllm->mode == "idlm") shape.sequence_length *= 2;  // and its copy
  return shape;
}

/// Adds the keys and values that a block's attention receives from other context-parallel ranks,
/// and in backward their gradients in float32.
void add_travelling_keys(const Recipe& recipe, const models::ModelDims& dims,
                         const nn::ActivationShape& shape, int cp_size,
                         nn::ActivationSizes& activations) {
  if (cp_size == 1) return;
  const bool is_ring =
      recipe.distributed.context.cp_rotate_method == distributed::CpRotateMethod::kAllToAll;
  const int64_t num_kv_heads = dims.num_kv_heads / shape.num_head_parts;
  const int64_t own = shape.tokens() * 2 * num_kv_heads * dims.head_dim;
  const int64_t num_shares = is_ring ? 2 : cp_size + 1;  // + 1: the own ones, as sent
  activations.block_forward += num_shares * own * shape.element_size;
  activations.block_backward += num_shares * own * (shape.element_size + 4);
}

std::string uncounted_of_teacher(const Recipe& recipe, const RecipePlan& plan) {
  if (recipe.distillation->teacher_distributed) {
    return "the teacher's own ranks; of its head's weight and hidden states the copies here, and "
           "distributions of 256 tokens at a time";
  }
  if (!recipe.distillation->teacher.hf_config.is_object()) {
    return "the teacher, whose config.json is not here";
  }
  if (!plan.teacher) return "the teacher's stages, a copy of its head and its hidden states";
  if (recipe.distillation->offloads_teacher && !plan.options.device.is_cpu()) {
    return "the teacher's activations, distributions of 256 tokens at a time, and that the "
           "teacher leaves the device between its forwards";
  }
  return "the teacher's activations, and distributions of 256 tokens at a time";
}

/// What a run does or allocates beyond the plan's numbers.
std::vector<std::string> uncounted(const Recipe& recipe, const RecipePlan& plan) {
  std::vector<std::string> all;
  if (plan.sizes.tp > 1) all.emplace_back("collectives between tensor-parallel ranks");
  if (plan.sizes.cp > 1) all.emplace_back("collectives of keys and values");
  if (plan.sizes.pp > 1) all.emplace_back("collectives inside the stages, messages' buffers");
  if (plan.sizes.pp > 1 && recipe.saves_beside_training()) {
    all.emplace_back("copies for background saves");
  }
  const auto mode = distributed::activation_checkpointing_mode(recipe.distributed);
  if (mode == distributed::ActivationCheckpointingMode::kSelective) {
    all.emplace_back("what selective checkpointing keeps (planned as full)");
  }
  if (recipe.distillation) all.push_back(uncounted_of_teacher(recipe, plan));
  if (recipe.dllm && recipe.dllm->mode == "scdd") {
    all.emplace_back(
        "the logits of a micro-batch's supervised tokens, which mode scdd makes whole");
  }
  if (recipe.quantization) all.emplace_back("quantization: the floats of one weight at a time");
  if (recipe.freeze && recipe.freeze->is_acting() && !recipe.peft) {
    all.emplace_back("that layers below the first trained one keep no activations (freeze_config)");
  }
  if (recipe.qat) all.emplace_back("qat: rounded copies of the head's and of one layer's weights");
  const size_t num_moe = plan.parallel.expert_modules.size();
  if (distributed::autocast_dtype(recipe.distributed)) {
    all.emplace_back("autocast_dtype: copies of weights, and activations in two dtypes");
  }
  if (plan.options.sharding && plan.options.sharding->output_dtype.value_or(
                                   plan.computed_dtype()) != plan.computed_dtype()) {
    all.emplace_back("hidden states between layers in output_dtype");
  }
  if (!plan.has_layer_units) {
    all.emplace_back("megatron_fsdp_unit_modules without layers: planned with the layers as units");
  }
  if (plan.options.head_dtype) all.emplace_back("the head's tensors in another dtype");
  // The activation sizes of models with a state are counted for each kind of layer.
  const bool counts_kinds =
      !plan.parallel.no_cp_reasons.empty() && !models::sees_later_tokens(recipe.model.hf_config);
  if (num_moe > 0 && num_moe < plan.parallel.blocks.size() && !counts_kinds) {
    all.emplace_back("that layers without experts keep other activations than those with them");
  }
  if (models::reads_sources(recipe.model.hf_config)) {
    all.emplace_back("that sources and targets differ in length");
  }
  if (!plan.options.device.is_cpu() && num_moe > 0) {
    all.emplace_back("what experts keep on a device beside what they keep on a CPU");
  }
  if (!plan.counts_activations) {
    all.emplace_back("activations of layers that run several times a micro-batch");
    if (plan.ep > 1) all.emplace_back("that canvases are shorter than their texts");
  }
  return all;
}

/// The units that the recipe's strategy makes, if it shards.
void plan_units(const Recipe& recipe, models::CausalLM& model, RecipePlan& plan) {
  if (plan.ep > 1) plan.options.experts.modules = plan.parallel.expert_modules;
  if (!plan.options.sharding) return;
  const distributed::PlannedUnits units = planned_units(recipe, model);
  plan.options.tables = units.tables;
  if (plan.ep == 1) plan.options.experts.modules = units.experts;
  plan.has_layer_units = units.blocks == plan.parallel.blocks;
}

/// Block diffusion reads a text, denoises its canvas without a graph, and denoises it again.
void plan_passes(const Recipe& recipe, const models::CausalLM& model, RecipePlan& plan) {
  const auto* denoiser = dynamic_cast<const models::BlockDenoiser*>(&model);
  if (denoiser == nullptr || !recipe.dllm) return;
  plan.counts_activations = false;
  plan.options.num_passes = 2;
  plan.options.num_graphless_passes = denoiser->has_self_conditioning() ? 1 : 0;
}

/// Only the sizes of what is sent to experts; the others are 0.
nn::ActivationSizes only_exchanged(const nn::ActivationSizes& all) {
  nn::ActivationSizes sizes;
  sizes.exchanged_forward = all.exchanged_forward;
  sizes.exchanged_backward = all.exchanged_backward;
  return sizes;
}

/// The plan counts a step pass by pass: what a block keeps in one of `options.num_passes`.
nn::ActivationSizes of_one_pass(nn::ActivationSizes sizes,
                                const distributed::MemoryOptions& options) {
  sizes.block_kept /= options.num_passes;
  sizes.block_input /= options.num_passes;
  return sizes;
}

/// Counts the buffers between files and parameters (checkpoint/safetensors.cpp): one piece of a
/// tensor for each of four reading threads; for saving, one that writes and one that computes
/// checksums.
void count_staging(RecipePlan& plan) {
  constexpr int64_t kReaders = 4, kWriters = 2, kLargestElement = 4;
  const int64_t piece = plan.options.device.is_cpu() ? int64_t{1} << 15 : int64_t{4} << 20;
  plan.loading_host = kReaders * piece * kLargestElement;
  plan.saving_host = kWriters * piece * kLargestElement;
}

/// Counts the copy of what is saved while training goes on; of offloaded state at most.
void count_background_copy(const Recipe& recipe, RecipePlan& plan) {
  if (!recipe.saves_beside_training()) return;
  // With adapters only these are saved; they are as large as their gradients.
  const int64_t parameters = recipe.peft ? plan.memory.gradients : plan.memory.parameters;
  const int64_t copy = parameters + plan.memory.optimizer + plan.memory.host;
  (plan.options.device.is_cpu() ? plan.background_copy : plan.saving_host) += copy;
}

}  // namespace

RecipePlan make_plan(const Recipe& recipe, const PlannedPlace& place) {
  RecipePlan plan;
  plan.recipe = place.recipe_path;
  plan.sizes = mesh_of(recipe, rank_shares(recipe, place.world_size).student);
  plan.strategy = distributed::strategy_name(recipe.distributed.strategy);
  plan.setup = recipe.distributed;
  plan.dtype = storage_dtype(recipe.model);
  const auto model = build_model(recipe, plan.dtype);
  plan.architecture = model->architecture();
  plan.parallel = model->parallel_plan();
  const at::Device device = place.device;
  plan.options = distributed::memory_options(recipe.distributed, plan.sizes, device);
  plan.options.optimizer_bytes = recipe.optimizer.state_bytes;
  if (const auto& bytes = recipe.optimizer.state_bytes_of_tensors) {
    plan.options.optimizer_bytes_of_tensors = [bytes, roles = optimizer_roles(recipe, *model)](
                                                  std::span<const tensor::FlatSegment> segments,
                                                  at::ScalarType parameter) {
      return bytes(segments, parameter, roles);
    };
  }
  for (auto* sharding : {&plan.options.sharding, &plan.options.experts.sharding}) {
    if (*sharding) (*sharding)->border_numel = recipe.optimizer.border_numel;
  }
  const int64_t per_micro_batch = recipe.step_scheduler.local_batch_size * plan.sizes.dp();
  plan.options.num_micro_batches =
      std::max<int64_t>(recipe.step_scheduler.global_batch_size / per_micro_batch, 1);
  plan.shape = batch_shape(recipe, place, model->dims());
  plan.shape.element_size = static_cast<int64_t>(c10::elementSize(plan.computed_dtype()));
  plan.shape.is_plain =
      plan.computed_dtype() != at::kFloat && plan.computed_dtype() != at::kBFloat16;
  plan.shape.on_device = !device.is_cpu();
  const bool drops = recipe.peft && recipe.peft->dropout > 0;
  plan.shape.has_dropped_down =
      drops && std::ranges::any_of(model->named_parameters(), [](const auto& it) {
        return it.key().find(".down_proj.lora_") != std::string::npos;
      });
  for (const at::Tensor& parameter : model->parameters()) {
    plan.num_parameters += parameter.numel();
    plan.num_trained += parameter.requires_grad() ? parameter.numel() : 0;
  }
  if (recipe.quantization) plan.num_parameters = num_elements(*model);
  plan.ep = expert_ranks(recipe);
  RankSplit split = split_for_a_rank(recipe, plan.sizes, *model);
  count_parts(recipe, plan.sizes, plan.parallel, split, plan.shape);
  plan.tp_rules = std::move(split.tp_rules);
  plan.options.keys = std::move(split.keys);
  plan.sequence_parallel = plan.sizes.tp > 1 && tp_request(recipe).sequence_parallel;
  plan_units(recipe, *model, plan);
  plan.options.keeps_after_backward =
      recipe.model.enables_fsdp_optimizations &&
      recipe.distributed.strategy == distributed::Strategy::kFsdp2 &&
      !plan.parallel.expert_modules.empty();
  plan.options.records_steps = recipe.model.records_steps;
  plan_passes(recipe, *model, plan);
  const distributed::SequenceShare share{0, plan.sizes.cp};
  plan.whole_length = plan.shape.sequence_length;
  plan.shape.is_part = share.size > 1;
  plan.shape.sequence_length = distributed::padded_length(plan.whole_length, share) / share.size;
  nn::ActivationSizes activations = model->activation_sizes(plan.shape);
  add_travelling_keys(recipe, model->dims(), plan.shape, share.size, activations);
  const auto groups = distributed::flat_parameters(*model, plan.parallel, plan.options.tables,
                                                   plan.options.experts.modules);
  const auto with = [&](const nn::ActivationSizes& sizes) {
    return distributed::plan_memory(groups, plan.options, sizes);
  };
  plan.memory = with(plan.counts_activations ? activations : only_exchanged(activations));
  if (!plan.counts_activations) {
    plan.activations_at_most =
        with(of_one_pass(activations, plan.options)).total() - plan.memory.total();
  }
  count_staging(plan);
  count_background_copy(recipe, plan);
  const bool has_teacher = recipe.distillation && plan.sizes.pp == 1 &&
                           !recipe.distillation->teacher_distributed &&
                           recipe.distillation->teacher.hf_config.is_object();
  if (has_teacher) plan.teacher = plan_teacher(recipe, plan.sizes, device);
  plan.not_counted = uncounted(recipe, plan);
  if (plan.sizes.pp > 1) {
    plan.pipeline = plan_pipeline(recipe, {plan.dtype, plan.shape, plan.options, plan.sizes});
  }
  return plan;
}

}  // namespace automodel::recipes
