#include "recipes/check/check_dllm.h"

#include "models/catalog.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

constexpr const char* kModel = "DiffusionGemmaForBlockDiffusion";

/// The value of a key of the section, or the section itself when it lacks the key: where the error
/// is shown.
const Node& place_in(const Node& section, const char* key) {
  const Node* found = section.find(key);
  return found == nullptr ? section : *found;
}

/// Noise needs unshifted samples: their labels are at their own tokens.
void check_unshifted(const DatasetSection& section, bool is_diffusion, Diagnostics& diagnostics) {
  const Node* found = section.node.find("unshifted");
  const bool is_unshifted = found != nullptr && found->bool_value() == true;
  if (is_unshifted == is_diffusion || section.plan == nullptr) return;
  if (!is_diffusion) {
    diagnostics.error(*found, "unshifted: true is for recipe: DiffusionGemmaSFTRecipe");
  } else if (found != nullptr) {
    diagnostics.error(*found, "block diffusion needs unshifted: true");
  } else {
    diagnostics.missing(section.node, "unshifted",
                        "missing key 'unshifted': block diffusion needs unshifted: true");
  }
}

void check_vocabulary(const Recipe& recipe, const Node& section, Diagnostics& diagnostics) {
  const Json* text = recipe.model.hf_config.find("text_config");
  if (text == nullptr || !text->is_object() || !recipe.dllm->vocab_size) return;
  const int64_t of_model = text->get("vocab_size", 0);
  if (of_model == 0 || *recipe.dllm->vocab_size <= of_model) return;
  diagnostics.error(place_in(section, "vocab_size"), cat("vocab_size ", *recipe.dllm->vocab_size,
                                                         " is more than the model's ", of_model));
}

}  // namespace

void check_dllm(const Recipe& recipe, Diagnostics& diagnostics) {
  if (recipe.class_name.empty()) return;  // a kind that is not here may have noise of its own
  const bool is_diffusion = recipe.dllm.has_value();
  check_unshifted(recipe.dataset, is_diffusion, diagnostics);
  for (const DatasetSection& section : recipe.validation_datasets) {
    check_unshifted(section, is_diffusion, diagnostics);
  }
  const Json& config = recipe.model.hf_config;
  if (!config.is_object()) return;
  const std::string architecture = models::find_family(config).architecture;
  if (is_diffusion != (architecture == kModel)) {
    diagnostics.error(
        recipe.model.node,
        is_diffusion ? cat("recipe DiffusionGemmaSFTRecipe trains ", kModel, ", not ", architecture)
                     : cat(kModel, " is trained by recipe: DiffusionGemmaSFTRecipe"));
    return;
  }
  if (!is_diffusion) return;
  if (const Node* section = recipe.root.find("dllm"); section != nullptr) {
    check_vocabulary(recipe, *section, diagnostics);
  }
  const Node* distributed = recipe.root.find("distributed");
  const auto refuse = [&](const char* key, const std::optional<int64_t>& size) {
    if (size.value_or(1) == 1) return;
    diagnostics.unsupported(distributed == nullptr ? recipe.root : place_in(*distributed, key),
                            cat(key, " above 1 of DiffusionGemma is not in this version"));
  };
  refuse("cp_size", recipe.distributed.sizes.cp_size);
  refuse("pp_size", recipe.distributed.sizes.pp_size);
}

}  // namespace automodel::recipes
