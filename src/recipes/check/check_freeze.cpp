#include "recipes/check/check_freeze.h"

#include <algorithm>

#include "core/error.h"
#include "models/catalog.h"
#include "recipes/build/freeze_parameters.h"
#include "recipes/check/place_of.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// Beside adapters everything else is frozen anyway.
void check_beside_adapters(const Recipe& recipe, Diagnostics& diagnostics) {
  const Node& section = *recipe.root.find("freeze_config");
  if (const Node* key = section.find("trainable_parameters"); key != nullptr && !key->is_null()) {
    diagnostics.error(*key,
                      "trainable_parameters is for runs without adapters (peft); "
                      "peft.modules_to_save names modules that are trained whole beside adapters");
    return;
  }
  diagnostics.warning_at_key(section,
                             "'freeze_config' has no effect with adapters (peft): they freeze "
                             "everything else");
}

}  // namespace

void check_freeze(const Recipe& recipe, Diagnostics& diagnostics) {
  const Node* const trained = recipe.root.find_path("freeze_config.trainable_parameters");
  if (trained != nullptr && trained->is_sequence() && trained->empty()) {
    diagnostics.error(*trained,
                      "trainable_parameters is empty, and no parameter would be left to train; "
                      "without the key all are trained");
    return;
  }
  if (!recipe.freeze || !recipe.freeze->is_acting()) return;
  if (recipe.peft) {
    check_beside_adapters(recipe, diagnostics);
    return;
  }
  const Json& config = recipe.model.hf_config;
  const bool is_buildable = config.is_object() && models::find_family(config).is_known &&
                            models::check_config(config).empty();
  if (!is_buildable) return;
  const auto model = models::build_causal_lm(config, at::kFloat);
  for (const FreezeFinding& finding : freeze_parameters(*model, *recipe.freeze)) {
    const Node& value = place_of(recipe, "freeze_config", finding.key.c_str());
    const auto element = std::ranges::find_if(value.children(), [&](const Node& child) {
      return value.is_sequence() && child.text() == finding.element;
    });
    const Node& place = element == value.children().end() ? value : *element;
    if (finding.is_unsupported) {
      diagnostics.unsupported(place, finding.text);
    } else {
      diagnostics.error(place, finding.text);
    }
  }
}

}  // namespace automodel::recipes
