#include "recipes/check/check_dllm.h"

#include <vector>

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
void check_unshifted(const Recipe& recipe, const DatasetSection& section,
                     Diagnostics& diagnostics) {
  if (section.plan == nullptr || section.plan->is_unshifted() == recipe.dllm.has_value()) return;
  const Node* found = section.node.find("unshifted");
  if (!recipe.dllm) {
    diagnostics.error(*found, cat("unshifted: true is for recipe: ", kMaskedDiffusionRecipe, " or ",
                                  kBlockDiffusionRecipe));
    return;
  }
  const char* const kind = recipe.dllm->is_block_diffusion() ? "block" : "masked";
  if (found != nullptr) {
    diagnostics.error(*found, cat(kind, " diffusion needs unshifted: true"));
  } else {
    diagnostics.missing(section.node, "unshifted",
                        cat("missing key 'unshifted': ", kind, " diffusion needs unshifted: true"));
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

void check_mask_token(const Recipe& recipe, const Node& section, Diagnostics& diagnostics) {
  const std::optional<int64_t> id = recipe.dllm->mask_token_id;
  const std::optional<int64_t> of_model = models::vocabulary_size(recipe.model.hf_config);
  if (!of_model) return;
  if (id && *id >= *of_model) {
    diagnostics.error(
        place_in(section, "mask_token_id"),
        cat("mask_token_id ", *id, " is not among the model's ", *of_model, " tokens"));
  }
  const std::optional<int64_t> vocab_size = recipe.dllm->vocab_size;
  if (recipe.dllm->mode == "scdd" && vocab_size && *vocab_size != *of_model) {
    diagnostics.error(place_in(section, "vocab_size"),
                      cat("vocab_size ", *vocab_size, " is not the model's ", *of_model));
  }
}

/// Why a mode of kMaskedDiffusionRecipe does not train a model; "" if it does.
std::string why_not(const Recipe& recipe, const std::string& architecture) {
  const Json& config = recipe.model.hf_config;
  const std::string& mode = recipe.dllm->mode;
  if (mode == "idlm") {
    if (models::sees_all_earlier_tokens(config)) return "";
    return cat("mode idlm trains models that read from left to right by plain attention, without ",
               "windows, caps and dropout of attention; ", architecture, " is none");
  }
  if (models::sees_later_tokens(config)) return "";
  return cat("mode ", mode, " trains models whose attention sees later tokens (LLaDAModelLM, ",
             "LLaDA2MoeModelLM), not ", architecture);
}

/// Whether the recipe's class and mode train the model.
bool fits_model(const Recipe& recipe, Diagnostics& diagnostics) {
  const Json& config = recipe.model.hf_config;
  const std::string architecture = models::find_family(config).architecture;
  const bool is_of_blocks = architecture == kModel;
  std::string problem;
  if (!recipe.dllm) {
    if (!is_of_blocks && !models::sees_later_tokens(config)) return true;
    problem = cat(architecture, " is trained by recipe: ",
                  is_of_blocks ? kBlockDiffusionRecipe : kMaskedDiffusionRecipe);
  } else if (recipe.class_name == kMaskedDiffusionRecipe) {
    problem = why_not(recipe, architecture);
  } else if (!is_of_blocks) {
    problem = cat("recipe ", kBlockDiffusionRecipe, " trains ", kModel, ", not ", architecture);
  }
  if (!problem.empty()) diagnostics.error(recipe.model.node, problem);
  return problem.empty();
}

void refuse_sizes(const Recipe& recipe, Diagnostics& diagnostics) {
  const Node* distributed = recipe.root.find("distributed");
  const auto refuse = [&](const char* key, const std::optional<int64_t>& size, const char* what) {
    if (size.value_or(1) == 1) return;
    diagnostics.unsupported(distributed == nullptr ? recipe.root : place_in(*distributed, key),
                            cat(key, " above 1 of ", what, " is not in this version"));
  };
  if (recipe.dllm->is_block_diffusion()) {
    refuse("cp_size", recipe.distributed.sizes.cp_size, "DiffusionGemma");
    refuse("pp_size", recipe.distributed.sizes.pp_size, "DiffusionGemma");
    return;
  }
  const std::string mode = "mode " + recipe.dllm->mode;
  refuse("pp_size", recipe.distributed.sizes.pp_size, mode.c_str());
  if (recipe.dllm->mode == "idlm") {  // of the other modes' models their plans say it
    refuse("cp_size", recipe.distributed.sizes.cp_size, mode.c_str());
  } else if (recipe.dllm->mode == "scdd") {
    refuse("tp_size", recipe.distributed.sizes.tp_size, mode.c_str());
  }
}

}  // namespace

void check_dllm(const Recipe& recipe, Diagnostics& diagnostics) {
  if (recipe.class_name.empty()) return;  // a kind that is not here may have noise of its own
  std::vector<const DatasetSection*> sections = recipe.dataset.single_sections();
  for (const DatasetSection& section : recipe.validation_datasets) {
    for (const DatasetSection* single : section.single_sections()) sections.push_back(single);
  }
  for (const DatasetSection* section : sections) check_unshifted(recipe, *section, diagnostics);
  if (!recipe.model.hf_config.is_object()) return;
  if (!fits_model(recipe, diagnostics) || !recipe.dllm) return;
  if (const Node* section = recipe.root.find("dllm"); section != nullptr) {
    if (recipe.dllm->is_block_diffusion()) {
      check_vocabulary(recipe, *section, diagnostics);
      if (recipe.neftune) {
        diagnostics.unsupported(*recipe.root.find("neftune"),
                                "noise on embeddings of DiffusionGemma is not in this version");
      }
    } else {
      check_mask_token(recipe, *section, diagnostics);
    }
  }
  refuse_sizes(recipe, diagnostics);
}

}  // namespace automodel::recipes
