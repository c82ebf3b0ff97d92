#include "recipes/run/initial_weights.h"

#include <map>
#include <string_view>

#include "checkpoint/hf_folder.h"
#include "core/error.h"
#include "recipes/build/base_weights.h"
#include "tensor/random.h"

namespace automodel::recipes {

namespace {

/// Draws the tensors whose names begin with one of the prefixes; "" is all of them.
void draw_weights(int64_t seed, const SessionModel& model,
                  const std::vector<std::string>& prefixes) {
  std::map<std::string, tensor::InitRule> rules;
  for (const auto& part : model.parts) {
    for (const models::ParameterInit& init : part->initial_values()) {
      rules.emplace(init.parameter, init.rule);
    }
  }
  std::map<std::string_view, const tensor::ParameterPart*> parts;
  for (const tensor::ParameterPart& part : model.model().key_map()) parts.emplace(part.name, &part);
  for (const auto& shard : model.engine().parameters()) {
    for (const auto& segment : shard.segments) {
      if (!checkpoint::has_prefix(segment.fqn, prefixes)) continue;
      const auto found = parts.find(segment.fqn);
      AM_CHECK(found != parts.end(), segment.fqn);
      const auto rule = rules.find(found->second->parameter);
      AM_CHECK(rule != rules.end(), found->second->parameter);
      const tensor::RandomKey key(static_cast<uint64_t>(seed), segment.fqn);
      tensor::fill_initial_values(shard.view(segment), segment.spec, rule->second, key);
    }
  }
}

}  // namespace

void load_initial_weights(const Recipe& recipe, const SessionModel& model,
                          comm::SlowWork& slow_work, Reporter& reporter) {
  if (recipe.model.is_from_config || recipe.model.section.load_base_model == false) {
    draw_weights(recipe.seed, model, {""});
    return;
  }
  const std::vector<std::string> drawn_anew =
      recipe.checkpoint.skip_task_head_prefixes_for_base_model.value_or(std::vector<std::string>());
  slow_work.run("loading the weights", [&] {
    load_base_weights(recipe.model.folder, model.model(), model.engine().parameters(), drawn_anew,
                      reporter, &slow_work.progress());
  });
  if (!drawn_anew.empty()) draw_weights(recipe.seed, model, drawn_anew);
}

}  // namespace automodel::recipes
