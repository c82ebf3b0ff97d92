#include "recipes/check/check_run.h"

#include <algorithm>

#include "config/bind.h"
#include "core/file.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "models/catalog.h"
#include "models/flops.h"
#include "recipes/build/pipeline_request.h"
#include "recipes/build/tp_request.h"
#include "recipes/check/check_built.h"
#include "recipes/check/check_data.h"
#include "recipes/check/check_distillation.h"
#include "recipes/check/check_dllm.h"
#include "recipes/check/check_freeze.h"
#include "recipes/check/check_peft.h"
#include "recipes/check/check_precision.h"
#include "recipes/check/check_qat.h"
#include "recipes/check/check_quantization.h"
#include "recipes/check/check_tool_calls.h"
#include "recipes/check/place_of.h"
#include "recipes/check/strategy_check.h"
#include "recipes/read/new_findings.h"
#include "recipes/read/read_distillation.h"
#include "recipes/read/read_model.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// Warns of options of megatron_fsdp that have no effect on several ranks.
void check_megatron_fsdp(const Recipe& recipe, int64_t world_size, Diagnostics& diagnostics) {
  const distributed::MegatronFSDPConfig& config = recipe.distributed.megatron_fsdp;
  const auto place = [&](const char* key) -> const Node& {
    return place_of(recipe, "distributed", key);
  };
  const std::tuple<const char*, bool, const char*> idle[] = {
      {"init_fsdp_with_meta_device", config.init_fsdp_with_meta_device,
       "models never have memory before they are sharded here"},
      {"disable_bucketing", config.disable_bucketing, "a unit is one collective already"},
      {"keep_fp8_transpose_cache", config.keep_fp8_transpose_cache, "nothing is in fp8"},
      {"nccl_ub", config.nccl_ub, "no buffer is registered with NCCL here"},
      {"fsdp_double_buffer", config.fsdp_double_buffer, "gathers always reuse freed memory"}};
  for (const auto& [key, is_set, reason] : idle) {
    if (is_set) diagnostics.warning(place(key), cat(key, " changes nothing here: ", reason));
  }
  if (config.average_in_collective && config.calculate_per_token_loss) {
    diagnostics.warning(place("average_in_collective"),
                        "average_in_collective has no effect beside calculate_per_token_loss, "
                        "with which gradients are summed");
  }
  if (!has_several_sharers(recipe.distributed, world_size)) return;
  distributed::MegatronFSDPConfig with_overlaps = config;
  with_overlaps.overlap_grad_reduce = with_overlaps.overlap_param_gather = true;
  const auto own = distributed::sharding_options(config, at::kCPU);
  const auto wanted = distributed::sharding_options(with_overlaps, at::kCPU);
  if (!config.overlap_grad_reduce && own.overlaps_reductions == wanted.overlaps_reductions) {
    diagnostics.warning(place("overlap_grad_reduce"),
                        "overlap_grad_reduce: false has no effect where gradients or parameters "
                        "are sharded (zero_dp_strategy 2 and 3): a unit's are reduced as soon as "
                        "they are there");
  }
  if (!config.overlap_param_gather && own.forward_prefetch_depth == wanted.forward_prefetch_depth) {
    diagnostics.warning(place("overlap_param_gather"),
                        "overlap_param_gather: false has no effect where parameters are sharded "
                        "(zero_dp_strategy 3): the next unit's are gathered ahead");
  }
}

/// Warns of fsdp2's options that have no effect on this device or beside others.
void check_fsdp2(const Recipe& recipe, int64_t world_size, Diagnostics& diagnostics) {
  const distributed::DistributedSetup& setup = recipe.distributed;
  const bool is_sharded = has_several_sharers(setup, world_size);
  if (is_sharded && setup.fsdp2.offload_policy && !recipe.dist_env.names_nccl()) {
    diagnostics.warning(place_of(recipe, "distributed", "offload_policy"),
                        "offload_policy has no effect on a CPU, whose memory parameters are in: "
                        "without nccl as backend a run trains there");
  }
  const bool is_mixin = recipe.model.enables_fsdp_optimizations && has_experts(recipe);
  if (is_mixin && setup.sizes.pp_size.value_or(1) > 1 && !setup.fsdp2.defer_fsdp_grad_sync) {
    diagnostics.warning(place_of(recipe, "distributed", "defer_fsdp_grad_sync"),
                        "defer_fsdp_grad_sync: false has no effect in a pipeline beside "
                        "model.backend.enable_fsdp_optimizations, which reduces gradients once a "
                        "step");
  }
}

/// enable_fsdp_optimizations is for models with experts that fsdp2 shards.
void check_fsdp_optimizations(const Recipe& recipe, Diagnostics& diagnostics) {
  if (!recipe.model.enables_fsdp_optimizations) return;
  const bool is_dense = models::num_routed_experts(recipe.model.hf_config) == 0;
  const bool is_fsdp2 = recipe.distributed.strategy == distributed::Strategy::kFsdp2;
  if (!is_dense && is_fsdp2) return;
  diagnostics.warning(place_of(recipe, "model", "backend"),
                      cat("enable_fsdp_optimizations has no effect: ",
                          is_dense ? "the model has no experts" : "it is for fsdp2"));
}

/// Models here are text-only: a scope without the language model selects nothing.
void check_recomputation(const Recipe& recipe, Diagnostics& diagnostics) {
  using Mode = distributed::ActivationCheckpointingMode;
  const distributed::DistributedSetup& setup = recipe.distributed;
  if (distributed::activation_checkpointing_mode(setup) == Mode::kOff) return;
  const std::vector<std::string>& scope = distributed::activation_checkpointing_scope(setup);
  if (distributed::has_language_scope(scope)) return;
  diagnostics.warning(place_of(recipe, "distributed", "activation_checkpointing_scope"),
                      cat("Activation checkpointing scope ", join(scope, ", "),
                          " selected no layers: this model has a language part only"));
}

/// Whether a student or teacher without experts is on the ranks of one that may have some.
bool shares_ranks_with_experts(const Recipe& recipe) {
  if (recipe.is_frozen) return true;  // the student's ep_size
  if (!recipe.distillation || recipe.distillation->teacher_distributed) return false;
  return models::num_routed_experts(recipe.distillation->teacher.hf_config) != 0;
}

/// Checks ep_size against the strategy and the model's experts.
void check_expert_parallel(const Recipe& recipe, Diagnostics& diagnostics) {
  const distributed::ParallelismSizes& sizes = recipe.distributed.sizes;
  const int64_t ep = sizes.ep_size.value_or(1);
  if (ep == 1) return;
  const Node& place = place_of(recipe, "distributed", "ep_size");
  const std::optional<int64_t> num_experts = models::num_routed_experts(recipe.model.hf_config);
  if (!num_experts) return;  // no config.json on this machine
  if (*num_experts == 0) {
    if (shares_ranks_with_experts(recipe)) return;
    diagnostics.error(place, cat("ep_size ", ep, ": the model has no experts"));
  } else if (*num_experts % ep != 0) {
    diagnostics.error(
        place, cat("ep_size ", ep, " does not divide the model's ", *num_experts, " experts"));
  }
}

/// Warns of flags that have an effect on layers of experts only.
void check_expert_flags(const Recipe& recipe, Diagnostics& diagnostics) {
  if (models::num_routed_experts(recipe.model.hf_config) != 0) return;
  if (recipe.model.has_fake_balanced_gate) {
    diagnostics.warning(place_of(recipe, "model", "backend"),
                        "fake_balanced_gate has no effect: the model has no experts");
  }
  if (recipe.moe_metrics.enabled) {
    diagnostics.warning(place_of(recipe, "moe_metrics", "enabled"),
                        "moe_metrics have no effect: the model has no experts");
  }
}

/// An optimizer of whole matrices does not join the parts of tensor-parallel ranks.
void check_matrix_optimizer(const Recipe& recipe, Diagnostics& diagnostics) {
  if (!recipe.optimizer.changes_matrices) return;
  if (recipe.distributed.sizes.tp_size.value_or(1) == 1) return;
  diagnostics.unsupported(place_of(recipe, "distributed", "tp_size"),
                          "tp_size above 1 with Muon is not in this version: it changes whole "
                          "matrices, of which tensor-parallel ranks hold parts");
}

/// How to start enough ranks, where there are fewer than tensor, context and pipeline parallelism
/// take; else "".
std::string more_ranks_hint(const Recipe& recipe, int64_t world_size) {
  const auto& sizes = recipe.distributed.sizes;
  const int64_t of_a_model =
      sizes.tp_size.value_or(1) * sizes.cp_size.value_or(1) * sizes.pp_size.value_or(1);
  if (world_size >= of_a_model) return "";
  const int64_t fewest = fitting_world_size(recipe);
  if (!distributed::check_setup(recipe.distributed, fewest).empty()) return "";
  return cat("; the fewest ranks that fit are ", fewest, ": --nproc-per-node ", fewest,
             " starts them on this machine");
}

void check_distributed(const Recipe& recipe, int64_t world_size, Diagnostics& diagnostics) {
  const auto findings = distributed::check_setup(recipe.distributed, world_size);
  const std::string hint = findings.empty() ? "" : more_ranks_hint(recipe, world_size);
  for (const auto& finding : findings) {
    diagnostics.error(place_of(recipe, "distributed", finding.key), cat(finding.text, hint));
  }
  const auto& setup = recipe.distributed;
  check_expert_parallel(recipe, diagnostics);
  check_expert_flags(recipe, diagnostics);
  check_matrix_optimizer(recipe, diagnostics);
  check_strategy(recipe, diagnostics);
  check_fsdp_optimizations(recipe, diagnostics);
  if (setup.strategy == distributed::Strategy::kFsdp2) check_fsdp2(recipe, world_size, diagnostics);
  if (setup.strategy == distributed::Strategy::kMegatronFsdp) {
    check_megatron_fsdp(recipe, world_size, diagnostics);
  }
  check_recomputation(recipe, diagnostics);
}

/// Training on a stream ends by max_steps alone.
void check_end(const Recipe& recipe, Diagnostics& diagnostics) {
  if (recipe.dataset.plan == nullptr || !recipe.dataset.plan->is_stream()) return;
  const Node* section = recipe.root.find("step_scheduler");
  if (!recipe.step_scheduler.max_steps) {
    diagnostics.missing(section != nullptr ? *section : recipe.root, "max_steps",
                        "missing key 'max_steps': this dataset has no end, and only max_steps "
                        "ends the run");
  }
  const Node* epochs = section != nullptr ? section->find("num_epochs") : nullptr;
  if (epochs == nullptr || epochs->is_null()) return;
  diagnostics.warning_at_key(
      *epochs, "'num_epochs' has no effect: the first epoch of this dataset has no end");
}

/// A run begins before it ends.
void check_beginning(const Recipe& recipe, Diagnostics& diagnostics) {
  const training::StepSchedulerConfig& config = recipe.step_scheduler;
  if (config.max_steps && config.start_step >= *config.max_steps) {
    diagnostics.error(
        place_of(recipe, "step_scheduler", "start_step"),
        cat("start_step ", config.start_step, " leaves no step to take: max_steps is ",
            *config.max_steps, ", and steps count from 0"));
  }
  if (config.num_epochs && config.start_epoch >= *config.num_epochs) {
    diagnostics.error(place_of(recipe, "step_scheduler", "start_epoch"),
                      cat("start_epoch ", config.start_epoch, " leaves no epoch: num_epochs is ",
                          *config.num_epochs, ", and epochs count from 0"));
  }
}

void check_scheduler(const Recipe& recipe, int64_t world_size, Diagnostics& diagnostics) {
  const auto& sizes = recipe.distributed.sizes;
  const int64_t model_ranks =
      sizes.tp_size.value_or(1) * sizes.cp_size.value_or(1) * sizes.pp_size.value_or(1);
  if (world_size % model_ranks != 0) return;  // check_distributed reports it
  const int64_t dp = world_size / model_ranks;
  check_beginning(recipe, diagnostics);
  check_end(recipe, diagnostics);
  for (const auto& finding : training::check_step_scheduler(recipe.step_scheduler, dp)) {
    diagnostics.error(place_of(recipe, "step_scheduler", finding.key), finding.text);
  }
  if (!recipe.lr_scheduler || recipe.optimizer.make == nullptr) return;
  // Without max_steps the length of the run is known only once the data is read.
  const bool is_bounded =
      recipe.step_scheduler.max_steps.has_value() || recipe.lr_scheduler->lr_decay_steps;
  int64_t steps = is_bounded ? recipe.step_scheduler.max_steps.value_or(
                                   recipe.lr_scheduler->lr_decay_steps.value_or(0))
                             : int64_t{1} << 40;
  // Epochs may end a run before max_steps, and shorten the warm-up that follows from its length.
  const bool has_epochs = recipe.step_scheduler.num_epochs.has_value() &&
                          recipe.dataset.plan != nullptr && !recipe.dataset.plan->is_stream();
  if (has_epochs && recipe.lr_scheduler->lr_decay_steps) {
    steps = std::min(steps, *recipe.lr_scheduler->lr_decay_steps);
  }
  for (const auto& finding : optim::LrSchedule::check(*recipe.lr_scheduler, recipe.optimizer.lr,
                                                      recipe.optimizer.weight_decay, steps)) {
    diagnostics.error(place_of(recipe, "lr_scheduler", finding.key), finding.text);
  }
  for (const auto& finding : optim::LrSchedule::unread(*recipe.lr_scheduler)) {
    diagnostics.warning(place_of(recipe, "lr_scheduler", finding.key), finding.text);
  }
}

void check_model(const Recipe& recipe, Diagnostics& diagnostics) {
  const Json& config = recipe.model.hf_config;
  if (!config.is_object()) return;
  const Node& place = recipe.model.node;
  const models::FamilyCheck family = models::find_family(config);
  if (!family.is_known) {
    diagnostics.unsupported(place, family.reason);
    return;
  }
  check_stored_quantization(recipe, diagnostics);
  for (const std::string& text : models::check_config(config)) {
    // A text that begins with a key that the recipe changed is about what the recipe says.
    const Node* changed = recipe.model.node.find(text.substr(0, text.find_first_of(" :")));
    diagnostics.error(changed != nullptr ? *changed : place, cat("config.json: ", text));
  }
}

/// Finds what prevents a model's attention from being split over context-parallel ranks. Texts
/// begin with `whose` it is.
void check_context_parallel(const Recipe& recipe, Diagnostics& diagnostics,
                            std::string_view whose = "") {
  const Json& config = recipe.model.hf_config;
  if (recipe.distributed.sizes.cp_size.value_or(1) == 1 || !config.is_object()) return;
  if (!models::find_family(config).is_known || !models::check_config(config).empty()) return;
  const auto model = models::build_causal_lm(config, at::kFloat);
  for (const std::string& reason : model->parallel_plan().no_cp_reasons) {
    diagnostics.unsupported(place_of(recipe, "distributed", "cp_size"), cat(whose, reason));
  }
}

/// Checkpoints go to a folder.
void check_checkpoint_dir(const Recipe& recipe, Diagnostics& diagnostics) {
  if (!recipe.checkpoint.enabled) return;
  const std::string& folder = recipe.checkpoint.checkpoint_dir;
  for (size_t end = folder.find('/', 1);; end = folder.find('/', end + 1)) {
    const std::string part = folder.substr(0, end);
    if (path_exists(part) && !is_directory(part)) {
      diagnostics.error(place_of(recipe, "checkpoint", "checkpoint_dir"),
                        cat("checkpoints need a folder, and ", part, " is a file"));
      return;
    }
    if (end == std::string::npos) return;
  }
}

/// Checks a checkpoint that the recipe names or gives the path of.
void check_restore(const Recipe& recipe, Diagnostics& diagnostics) {
  const auto& wanted = recipe.checkpoint.restore_from;
  if (!wanted || to_lower(*wanted) == "latest") return;
  if (path_exists(*wanted) || path_exists(path_join(recipe.checkpoint.checkpoint_dir, *wanted)) ||
      path_exists(path_join(recipe.checkpoint.checkpoint_dir, *wanted + ".txt"))) {
    return;
  }
  diagnostics.error(place_of(recipe, "checkpoint", "restore_from"),
                    cat("there is no checkpoint ", *wanted, ", neither in ",
                        recipe.checkpoint.checkpoint_dir, " nor as a path"));
}

void check_backend(const Recipe& recipe, Diagnostics& diagnostics) {
  const std::vector<std::string> known = {"nccl", "gloo", "cpu:gloo,cuda:nccl"};
  for (const char* section : {"dist_env", "distributed"}) {
    const Node* node = recipe.root.find_path(cat(section, ".backend"));
    if (node == nullptr || node->is_null()) continue;
    if (!node->is_string()) {
      diagnostics.error(*node, cat("expected nccl or gloo, found ", node->describe()));
      continue;
    }
    const std::string backend = to_lower(*node->string_value());
    if (std::find(known.begin(), known.end(), backend) != known.end()) continue;
    diagnostics.error(*node, cat("unknown backend '", *node->string_value(), "': nccl or gloo",
                                 did_you_mean(backend, known)));
  }
}

/// Warns of a device whose peak is unknown: without it there is no utilisation.
void check_mfu(const Recipe& recipe, Diagnostics& diagnostics) {
  if (!recipe.mfu.device || recipe.mfu.peak_tflops) return;
  if (models::peak_tflops(*recipe.mfu.device)) return;
  diagnostics.warning(place_of(recipe, "mfu", "device"),
                      cat("no peak is known for the device '", *recipe.mfu.device,
                          "': mfu stays null; mfu.peak_tflops says one"));
}

/// A run that saves nothing has nothing to go back to.
void check_rollback(const Recipe& recipe, Diagnostics& diagnostics) {
  const bool can_roll_back = recipe.checkpoint.enabled || recipe.benchmark.has_value();
  if (recipe.clip.on_spike != OnSpike::kRollback || can_roll_back) return;
  diagnostics.error(place_of(recipe, "clip_grad_norm", "on_spike"),
                    "on_spike: rollback goes back to a checkpoint, and checkpoint.enabled is "
                    "false; skip leaves the update of a spike out");
}

/// Tells where state lies that a CUDA device would page.
void check_paging(const Recipe& recipe, Diagnostics& diagnostics) {
  if (!recipe.optimizer.is_paged) return;
  diagnostics.warning(recipe.optimizer.node,
                      "a CPU pages no optimizer state: it lies in memory as without paging, with "
                      "the same numbers; a run on a CUDA device is refused");
}

/// How the teacher is spread over the ranks, which are the student's or its own.
void check_teacher_mesh(const Recipe& recipe, const Recipe& teacher, int64_t num_ranks,
                        Diagnostics& diagnostics) {
  Diagnostics found = diagnostics;
  if (recipe.distillation->teacher_distributed) {
    Recipe alone = teacher_recipe(recipe);
    alone.is_frozen = false;  // nobody else's experts are on its ranks
    check_distributed(alone, num_ranks, found);
    check_one_rank(alone, num_ranks, found);  // its sizes are always stated
  } else {
    check_expert_parallel(teacher, found);
  }
  check_tensor_parallel(teacher, found);
  check_pipeline(teacher, found);
  add_new_findings(found, diagnostics, "the teacher: ");
}

/// The teacher by itself, and beside the student.
void check_teacher(const Recipe& recipe, const CheckOptions& options, int64_t num_ranks,
                   Diagnostics& diagnostics) {
  const Recipe teacher = teacher_recipe(recipe);
  check_model(teacher, diagnostics);
  if (teacher.model.has_fake_balanced_gate) {
    diagnostics.unsupported(place_of(teacher, "model", "backend"),
                            "fake_balanced_gate of a teacher is not in this version");
  }
  check_dllm(teacher, diagnostics);
  check_precision(teacher, num_ranks, diagnostics, "the teacher's ");
  check_context_parallel(teacher, diagnostics, "the teacher: ");
  check_teacher_mesh(recipe, teacher, num_ranks, diagnostics);
  check_built_model(teacher, options.looks_at_data && options.loads_tokenizers, diagnostics);
  check_distillation(recipe, options.looks_at_data, diagnostics);
}

}  // namespace

int64_t fitting_world_size(const Recipe& recipe) {
  constexpr int64_t kMostReplicas = 1024;
  if (const RankShares shares = rank_shares(recipe, 0); shares.teacher > 0) {
    return shares.student + shares.teacher;
  }
  const auto& sizes = recipe.distributed.sizes;
  const int64_t model_ranks =
      sizes.tp_size.value_or(1) * sizes.cp_size.value_or(1) * sizes.pp_size.value_or(1);
  int64_t fits_mesh = 0;
  for (int64_t dp = 1; dp <= kMostReplicas; ++dp) {
    if (!distributed::check_setup(recipe.distributed, dp * model_ranks).empty()) continue;
    if (training::check_step_scheduler(recipe.step_scheduler, dp).empty()) return dp * model_ranks;
    if (fits_mesh == 0) fits_mesh = dp * model_ranks;
  }
  return fits_mesh != 0 ? fits_mesh : model_ranks;
}

void check_run(const Recipe& recipe, const CheckOptions& options, Diagnostics& diagnostics) {
  const RankShares shares = rank_shares(recipe, options.world_size);
  check_distributed(recipe, shares.student, diagnostics);
  check_precision(recipe, shares.student, diagnostics);
  if (options.is_world_size_given) check_one_rank(recipe, shares.student, diagnostics);
  check_backend(recipe, diagnostics);
  check_mfu(recipe, diagnostics);
  check_paging(recipe, diagnostics);
  check_weight_bits(recipe, shares.student, diagnostics);
  check_eps(recipe, shares.student, diagnostics);
  check_rollback(recipe, diagnostics);
  check_validation_sets(recipe, diagnostics);
  check_scheduler(recipe, shares.student, diagnostics);
  check_model(recipe, diagnostics);
  check_tensor_parallel(recipe, diagnostics);
  check_context_parallel(recipe, diagnostics);
  check_pipeline(recipe, diagnostics);
  check_dllm(recipe, diagnostics);
  check_peft(recipe, diagnostics);
  check_quantization(recipe, diagnostics);
  check_qat(recipe, diagnostics);
  check_freeze(recipe, diagnostics);
  check_tool_calls(recipe, shares.student, diagnostics);
  check_built_model(recipe, options.looks_at_data && options.loads_tokenizers, diagnostics);
  if (recipe.distillation) {
    const bool is_beside = shares.teacher > 0;
    if (is_beside) check_separate_meshes(recipe, options.world_size, diagnostics);
    check_teacher(recipe, options, is_beside ? shares.teacher : shares.student, diagnostics);
  }
  if (options.looks_at_data) {
    check_checkpoint_dir(recipe, diagnostics);
    check_restore(recipe, diagnostics);
    check_datasets(recipe, options.loads_tokenizers, diagnostics);
  }
}

}  // namespace automodel::recipes
