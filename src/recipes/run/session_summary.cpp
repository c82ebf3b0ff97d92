#include "recipes/run/session_summary.h"

#include <variant>

#include "core/field.h"
#include "core/file.h"
#include "core/text.h"
#include "distributed/settings/config_dict.h"
#include "peft/apply_lora.h"
#include "recipes/build/build_model.h"
#include "recipes/build/freeze_parameters.h"
#include "recipes/check/strategy_check.h"

namespace automodel::recipes {

namespace {

/// Parameters of the whole model; bytes of weights in 4 bits count as the elements they stand for.
int64_t num_parameters(const Recipe& recipe, const SessionModel& model) {
  return recipe.quantization ? num_elements(model.model()) : model.engine().num_parameters();
}

std::string model_line(const Recipe& recipe, const SessionModel& model) {
  const models::ModelDims dims = model.model().dims();
  return cat("model: ", model.model().architecture(), ", ", dims.num_layers, " layers, hidden ",
             dims.hidden_size, ", vocabulary ", dims.vocab_size, ", ",
             dims.num_labels > 0 ? cat(dims.num_labels, " classes, ") : "",
             num_parameters(recipe, model), " parameters (",
             model.engine().num_trained_parameters(), " trained)");
}

/// The options of a strategy that act here and are not its defaults: "name: value". One rank holds
/// everything, so only what it computes can differ.
template <typename Config>
std::vector<std::string> acting_options(const Config& config, bool is_alone, bool is_sharded) {
  const distributed::ConfigDict all = config.to_dict();
  const distributed::ConfigDict defaults = Config{}.to_dict();
  std::vector<std::string> acting;
  size_t i = 0;
  for_each_field<Config>([&](const auto& field) {
    const std::string_view name = field.name;
    const std::string text = distributed::to_text({all[i]});
    const bool is_default = text == distributed::to_text({defaults[i]});
    ++i;
    const bool is_computed =
        name.starts_with("activation_checkpointing") || name == "autocast_dtype";
    const bool is_of_shards = name == "mp_policy" || name == "offload_policy";
    if (is_default || field.no_effect != nullptr || (is_alone && !is_computed)) return;
    if (is_of_shards && !is_sharded) return;
    acting.push_back(text);
  });
  return acting;
}

/// The sizes of the axes along which a mesh splits or copies anything: "dp_shard 4, tp 2".
std::string axes_text(const distributed::DeviceMesh& mesh) {
  std::vector<std::string> axes;
  for (const char* axis : {"pp", "dp_replicate", "dp_shard", "cp", "tp", "ep"}) {
    if (mesh.has(axis) && mesh.size(axis) > 1) axes.push_back(cat(axis, " ", mesh.size(axis)));
  }
  return join(axes, ", ");
}

std::string distributed_line(const distributed::DistributedSetup& setup,
                             const distributed::DeviceMesh& mesh, int world_size) {
  const bool is_alone = world_size == 1;
  const bool is_sharded = has_several_sharers(setup, world_size);
  auto options =
      std::visit([&](const auto& config) { return acting_options(config, is_alone, is_sharded); },
                 distributed::distributed_config(setup));
  const auto& name = setup.megatron_fsdp.data_parallel_sharding_strategy;
  if (name && !is_alone) options.push_back(cat("data_parallel_sharding_strategy: ", *name));
  const std::string where = is_alone ? std::string("one rank holds everything") : axes_text(mesh);
  return cat("distributed: ", distributed::strategy_name(setup.strategy), ", ", where,
             options.empty() ? "" : "; ", join(options, ", "));
}

std::string pipeline_line(const distributed::PipelineSchedule& schedule) {
  return cat("pipeline: ", distributed::schedule_name(schedule.kind), ", ",
             schedule.shape.num_stages(), " stages on ", schedule.shape.num_ranks, " ranks, ",
             schedule.shape.num_microbatches, " micro-batches");
}

}  // namespace

std::vector<std::string> session_summary(const Recipe& recipe, const SessionModel& model,
                                         const training::StepScheduler& scheduler,
                                         const distributed::DeviceMesh& mesh, int world_size) {
  std::vector<std::string> lines = {model_line(recipe, model)};
  if (recipe.peft) {
    const auto adapters = peft::describe(*recipe.peft, model.model(), num_parameters(recipe, model),
                                         model.engine().num_trained_parameters());
    lines.insert(lines.end(), adapters.begin(), adapters.end());
  } else if (recipe.freeze && recipe.freeze->is_acting()) {
    lines.push_back(frozen_text(recipe.model.hf_config, *recipe.freeze));
  }
  if (model.pipeline) lines.push_back(pipeline_line(model.pipeline->schedule));
  lines.push_back(distributed_line(recipe.distributed, mesh, world_size));
  lines.push_back(cat("optimizer: ", model.optimizer->describe()));
  const int per_replica = mesh.size("tp") * mesh.size("cp");
  const std::string split = per_replica == 1 ? "" : cat(" (", per_replica, " a replica)");
  lines.push_back(cat("ranks: ", world_size, split, ", ", scheduler.grad_accumulation_steps(),
                      " micro-batches of ", recipe.step_scheduler.local_batch_size,
                      " sequences a step and ", split.empty() ? "rank" : "replica"));
  const auto epoch = scheduler.epoch_length();
  const std::string epochs =
      epoch ? cat(" in at most ", scheduler.num_epochs(), " epochs of ", *epoch) : "";
  lines.push_back(cat("steps: ", scheduler.max_steps(), epochs, "; checkpoints in ",
                      recipe.checkpoint.enabled ? recipe.checkpoint.checkpoint_dir : "(off)"));
  return lines;
}

std::string early_end_text(const Recipe& recipe, const training::StepScheduler& scheduler) {
  const auto& wanted = recipe.step_scheduler.max_steps;
  const config::Node* const epochs = recipe.root.find_path("step_scheduler.num_epochs");
  const bool is_default = epochs == nullptr;
  if (!wanted || !is_default || scheduler.max_steps() >= *wanted) return "";
  return cat("the run ends before max_steps ", *wanted, ", after ", scheduler.max_steps(),
             " steps: num_epochs is ", scheduler.num_epochs(),
             " where a recipe does not say it, and an epoch has ",
             scheduler.epoch_length().value_or(0),
             " steps; step_scheduler.num_epochs makes it more");
}

std::string finished_text(const Recipe& recipe, const training::StepScheduler& scheduler) {
  const bool ends_by_steps = scheduler.step() >= scheduler.max_steps();
  const std::string done =
      !ends_by_steps ? cat(scheduler.epoch(), " of ", scheduler.num_epochs(), " epochs are done")
      : scheduler.step() > scheduler.max_steps()
          ? cat(scheduler.step(), " steps are done, and ", scheduler.max_steps(), " were asked for")
          : cat(scheduler.step(), " of ", scheduler.max_steps(), " steps are done");
  const auto& schedule = recipe.lr_scheduler;
  const bool takes_saved_schedule = schedule && schedule->use_checkpoint_opt_param_scheduler &&
                                    !schedule->override_opt_param_scheduler;
  // More steps or more epochs help, whichever of the two ended the run.
  const bool is_bounded_by_steps =
      ends_by_steps && scheduler.max_steps() == recipe.step_scheduler.max_steps;
  return cat("already finished: ", done, "; to train on, raise step_scheduler.",
             is_bounded_by_steps ? "max_steps" : "num_epochs",
             takes_saved_schedule
                 ? " (at the learning rate to which it has decayed, or with "
                   "lr_scheduler.override_opt_param_scheduler: true by the longer schedule)"
                 : "",
             "; to train anew, give another checkpoint.checkpoint_dir");
}

std::string done_text(const Recipe& recipe, int64_t num_steps, double seconds,
                      const std::string& checkpoint) {
  const std::string text = cat("done: ", num_steps, num_steps == 1 ? " step in " : " steps in ",
                               format_duration(seconds));
  if (!recipe.checkpoint.enabled || checkpoint.empty()) return text;
  const std::string exported = path_join(checkpoint, "model/consolidated");
  if (is_directory(exported)) return cat(text, "; the model is in ", exported);
  return cat(text, "; the last checkpoint is ", checkpoint);
}

}  // namespace automodel::recipes
