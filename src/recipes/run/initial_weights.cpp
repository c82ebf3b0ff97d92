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

/// `from_elsewhere`: name prefixes of tensors whose values come from a checkpoint or an adapter.
void load_pretrained_weights(const Recipe& recipe, const SessionModel& model,
                             const std::vector<std::string>& from_elsewhere,
                             comm::SlowWork& slow_work, Reporter& reporter) {
  std::vector<std::string> left_out =
      recipe.checkpoint.skip_task_head_prefixes_for_base_model.value_or(std::vector<std::string>());
  left_out.insert(left_out.end(), from_elsewhere.begin(), from_elsewhere.end());
  std::vector<std::string> drawn;
  slow_work.run("loading the weights", [&] {
    if (recipe.peft) {
      const std::string missing =
          missing_beside_adapters(model.model(), checkpoint::HfFolder::open(recipe.model.folder));
      if (!missing.empty()) throw InputError(missing);
    }
    drawn = load_base_weights(recipe.model.folder, model.model(), model.engine().parameters(),
                              left_out, reporter, &slow_work.progress());
  });
  slow_work.run("repairing the embedding", [&] {
    repair_embedding_rows(recipe, model.model(), model.engine().parameters(), reporter);
  });
  if (drawn.empty()) return;
  draw_weights(model.parts, model.engine().parameters(), recipe.seed, [&](const std::string& name) {
    return checkpoint::has_prefix(name, drawn) && !checkpoint::has_prefix(name, from_elsewhere) &&
           !peft::is_adapter_tensor(name);
  });
}

}  // namespace

/// Name prefixes of tensors that a continued checkpoint, or the adapter that a run begins with,
/// holds beside adapters: modules that are trained whole.
static std::vector<std::string> parts_from_elsewhere(const Recipe& recipe,
                                                     const std::vector<std::string>& modules,
                                                     bool is_resumed) {
  if (!recipe.peft || (!is_resumed && !recipe.peft->adapter_name_or_path)) return {};
  std::vector<std::string> prefixes;
  for (const std::string& module : modules) prefixes.push_back(module + ".");
  return prefixes;
}

void load_initial_weights(const Recipe& recipe, const SessionModel& model, bool is_resumed,
                          comm::SlowWork& slow_work, Reporter& reporter) {
  const std::vector<std::string> left_out =
      parts_from_elsewhere(recipe, model.model().saved_modules(), is_resumed);
  if (recipe.model.draws_weights()) {
    draw_weights(model.parts, model.engine().parameters(), recipe.seed,
                 [&](const std::string& name) {
                   const bool is_adapter = is_resumed && peft::is_adapter_tensor(name);
                   return !is_adapter && !checkpoint::has_prefix(name, left_out);
                 });
  } else {
    load_pretrained_weights(recipe, model, left_out, slow_work, reporter);
  }
  if (recipe.peft && !is_resumed) start_adapters(recipe, model.parts, model.engine(), reporter);
}

}  // namespace automodel::recipes
