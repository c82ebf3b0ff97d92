#include "recipes/run/initial_weights.h"

#include "checkpoint/hf_folder.h"
#include "core/error.h"
#include "peft/apply_lora.h"
#include "recipes/build/base_weights.h"
#include "recipes/run/embedding_repair.h"
#include "recipes/run/session_adapters.h"

namespace automodel::recipes {

namespace {

void load_pretrained_weights(const Recipe& recipe, const SessionModel& model,
                             comm::SlowWork& slow_work, Reporter& reporter) {
  const std::vector<std::string> drawn_anew =
      recipe.checkpoint.skip_task_head_prefixes_for_base_model.value_or(std::vector<std::string>());
  std::vector<std::string> drawn;
  slow_work.run("loading the weights", [&] {
    drawn = load_base_weights(recipe.model.folder, model.model(), model.engine().parameters(),
                              drawn_anew, reporter, &slow_work.progress());
  });
  slow_work.run("repairing the embedding", [&] {
    repair_embedding_rows(recipe, model.model(), model.engine().parameters(), reporter);
  });
  if (drawn.empty()) return;
  draw_weights(model.parts, model.engine().parameters(), recipe.seed, [&](const std::string& name) {
    return checkpoint::has_prefix(name, drawn) && !peft::is_adapter_tensor(name);
  });
}

}  // namespace

void load_initial_weights(const Recipe& recipe, const SessionModel& model, bool is_resumed,
                          comm::SlowWork& slow_work, Reporter& reporter) {
  if (recipe.model.draws_weights()) {
    draw_weights(
        model.parts, model.engine().parameters(), recipe.seed,
        [&](const std::string& name) { return !is_resumed || !peft::is_adapter_tensor(name); });
  } else {
    load_pretrained_weights(recipe, model, slow_work, reporter);
  }
  if (recipe.peft && !is_resumed) start_adapters(recipe, model.parts, model.engine(), reporter);
}

}  // namespace automodel::recipes
