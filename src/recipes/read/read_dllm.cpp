#include "recipes/read/read_dllm.h"

#include <algorithm>

#include "config/bind.h"
#include "core/is_one_of.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

const std::vector<std::string> kModes = {
    "block_diffusion", "dflash", "hybrid", "idlm", "mdlm", "scdd"};

/// The modes of kMaskedDiffusionRecipe that are in this version.
const std::vector<std::string> kMaskedModes = {"mdlm", "scdd", "idlm"};

/// A key that only some modes of this version read.
struct KeyOfModes {
  const char* key;
  std::vector<std::string> modes;
};
const std::vector<KeyOfModes> kKeysOfModes = {{"eps", {"block_diffusion", "mdlm", "scdd"}},
                                              {"block_size", {"block_diffusion"}},
                                              {"vocab_size", {"block_diffusion", "scdd"}},
                                              {"encoder_loss_weight", {"block_diffusion"}},
                                              {"self_conditioning_p", {"block_diffusion"}},
                                              {"mask_token_id", kMaskedModes},
                                              {"block_length", {"idlm"}},
                                              {"clean_loss_weight", {"idlm"}},
                                              {"auto_balance_clean_loss", {"idlm"}},
                                              {"num_timesteps", {"scdd"}},
                                              {"uniform_ratio", {"scdd"}},
                                              {"schedule_shape", {"scdd"}},
                                              {"schedule_peak", {"scdd"}}};

/// The value of a key of the section, or the section itself when it lacks the key: where the error
/// is shown.
const Node& place_in(const Node& section, const char* key) {
  const Node* found = section.find(key);
  return found == nullptr ? section : *found;
}

/// Finds a mode that this recipe does not have.
bool check_mode(const Node& node, const DllmSection& section, bool is_of_gemma,
                Diagnostics& diagnostics) {
  const Node& place = place_in(node, "mode");
  const std::string& mode = section.mode;
  if (!is_one_of(kModes, mode)) {
    diagnostics.error(place, cat("unknown mode '", mode, "': one of ", join(kModes, ", "),
                                 did_you_mean(mode, kModes)));
    return false;
  }
  if (is_of_gemma) {
    if (section.is_block_diffusion()) return true;
    diagnostics.error(
        place, cat("DiffusionGemma is trained with mode: block_diffusion, not by mode ", mode));
    return false;
  }
  if (section.is_block_diffusion()) {
    diagnostics.error(place, cat("mode block_diffusion is of recipe: ", kBlockDiffusionRecipe));
    return false;
  }
  if (is_one_of(kMaskedModes, mode)) return true;
  diagnostics.unsupported(
      place, cat("mode ", mode, " is not in this version; recipe ", kMaskedDiffusionRecipe,
                 " trains with mode ", join(kMaskedModes, ", ")));
  return false;
}

void check_keys_of_mode(const Node& node, const DllmSection& section, Diagnostics& diagnostics) {
  for (const KeyOfModes& of : kKeysOfModes) {
    const Node* found = node.find(of.key);
    if (found == nullptr || found->is_null() || is_one_of(of.modes, section.mode)) continue;
    diagnostics.warning_at_key(
        *found, cat("'", of.key, "' has no effect here: mode ", section.mode, " does not read it"));
  }
  if (section.uniform_ratio >= 1) {
    diagnostics.error(place_in(node, "uniform_ratio"),
                      cat("must be below 1, not ", section.uniform_ratio));
  }
  if (section.schedule_peak >= 1) {
    diagnostics.error(place_in(node, "schedule_peak"),
                      cat("must be below 1, not ", section.schedule_peak));
  }
  const bool draws_tokens = section.is_block_diffusion() || section.mode == "scdd";
  if (draws_tokens && !section.vocab_size) {
    diagnostics.missing(node, "vocab_size",
                        "missing key 'vocab_size': noise is drawn below it; the model's");
  }
  if (!section.is_block_diffusion() && !section.mask_token_id) {
    diagnostics.missing(node, "mask_token_id",
                        "missing key 'mask_token_id': the token that hides others; config.json "
                        "of a LLaDA names it");
  }
}

}  // namespace

bool is_dllm_mode_foreign(const Node& root) {
  const Node* node = root.find("dllm");
  const Node* mode = node == nullptr ? nullptr : node->find("mode");
  if (mode == nullptr || !mode->is_scalar()) return false;
  const std::string& name = mode->text();
  return is_one_of(kModes, name) && !is_one_of(kMaskedModes, name) && name != "block_diffusion";
}

std::optional<DllmSection> read_dllm(const Node& root, const std::string& recipe_class,
                                     Diagnostics& diagnostics) {
  const Node* node = root.find("dllm");
  const bool is_absent = node == nullptr || node->is_null();
  const bool is_of_gemma = recipe_class == kBlockDiffusionRecipe;
  if (!is_of_gemma && recipe_class != kMaskedDiffusionRecipe) {
    if (!is_absent) {
      diagnostics.unknown_key(*node, cat("the section 'dllm' is for recipe: ",
                                         kMaskedDiffusionRecipe, " or ", kBlockDiffusionRecipe));
    }
    return std::nullopt;
  }
  if (is_absent) {
    diagnostics.missing(root, "dllm", "missing key 'dllm': how the model is trained by diffusion");
    return DllmSection{};
  }
  DllmSection section = config::bind<DllmSection>(*node, diagnostics);
  if (check_mode(*node, section, is_of_gemma, diagnostics)) {
    check_keys_of_mode(*node, section, diagnostics);
  }
  return section;
}

}  // namespace automodel::recipes
