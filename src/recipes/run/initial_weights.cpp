#include "recipes/run/initial_weights.h"

#include "checkpoint/hf_folder.h"
#include "core/error.h"
#include "peft/adapter_keys.h"
#include "peft/tensor_names.h"
#include "recipes/build/base_weights.h"
#include "recipes/run/embedding_repair.h"
#include "recipes/run/session_adapters.h"

namespace automodel::recipes {

namespace {

/// `resumed`: name prefixes of tensors whose values come from a checkpoint.
void load_pretrained_weights(const Recipe& recipe, const SessionModel& model,
                             const std::vector<std::string>& resumed, comm::SlowWork& slow_work,
                             Reporter& reporter) {
  std::vector<std::string> left_out =
      recipe.checkpoint.skip_task_head_prefixes_for_base_model.value_or(std::vector<std::string>());
  left_out.insert(left_out.end(), resumed.begin(), resumed.end());
  std::vector<std::string> drawn;
  slow_work.run("loading the weights", [&] {
    drawn = load_base_weights(recipe.model.folder, model.model(), model.engine().parameters(),
                              left_out, reporter, &slow_work.progress());
  });
  slow_work.run("repairing the embedding", [&] {
    repair_embedding_rows(recipe, model.model(), model.engine().parameters(), reporter);
  });
  if (drawn.empty()) return;
  draw_weights(model.parts, model.engine().parameters(), recipe.seed, [&](const std::string& name) {
    return checkpoint::has_prefix(name, drawn) && !checkpoint::has_prefix(name, resumed) &&
           !peft::is_adapter_tensor(name);
  });
}

}  // namespace

/// Name prefixes of what a continued checkpoint holds beside adapters: a classifier's head.
static std::vector<std::string> resumed_parts(const Recipe& recipe, bool is_resumed) {
  const bool has_head = is_resumed && recipe.peft && recipe.model.classifies;
  return has_head ? std::vector{cat(peft::kSavedModule, ".")} : std::vector<std::string>();
}

void load_initial_weights(const Recipe& recipe, const SessionModel& model, bool is_resumed,
                          comm::SlowWork& slow_work, Reporter& reporter) {
  const std::vector<std::string> resumed = resumed_parts(recipe, is_resumed);
  if (recipe.model.draws_weights()) {
    draw_weights(model.parts, model.engine().parameters(), recipe.seed,
                 [&](const std::string& name) {
                   const bool is_adapter = is_resumed && peft::is_adapter_tensor(name);
                   return !is_adapter && !checkpoint::has_prefix(name, resumed);
                 });
  } else {
    load_pretrained_weights(recipe, model, resumed, slow_work, reporter);
  }
  if (recipe.peft && !is_resumed) start_adapters(recipe, model.parts, model.engine(), reporter);
}

}  // namespace automodel::recipes
