#include "recipes/run/session_summary.h"

#include "core/text.h"
#include "peft/apply_lora.h"
#include "recipes/build/build_model.h"

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
             num_parameters(recipe, model), " parameters (",
             model.engine().num_trained_parameters(), " trained)");
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
  }
  if (model.pipeline) lines.push_back(pipeline_line(model.pipeline->schedule));
  lines.push_back(cat("distributed: ", distributed::describe(recipe.distributed)));
  lines.push_back(cat("optimizer: ", model.optimizer->describe()));
  const int per_replica = mesh.size("tp") * mesh.size("cp");
  const std::string split = per_replica == 1 ? "" : cat(" (", per_replica, " a replica)");
  lines.push_back(cat("ranks: ", world_size, split, ", ", scheduler.grad_accumulation_steps(),
                      " micro-batches of ", recipe.step_scheduler.local_batch_size,
                      " sequences a step and ", split.empty() ? "rank" : "replica"));
  lines.push_back(cat("steps: ", scheduler.max_steps(), " in at most ", scheduler.num_epochs(),
                      " epochs of ", *scheduler.epoch_length(), "; checkpoints in ",
                      recipe.checkpoint.enabled ? recipe.checkpoint.checkpoint_dir : "(off)"));
  return lines;
}

}  // namespace automodel::recipes
