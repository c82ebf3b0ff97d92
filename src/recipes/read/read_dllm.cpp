#include "recipes/read/read_dllm.h"

#include <algorithm>

#include "config/bind.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

constexpr const char* kMode = "block_diffusion";
const std::vector<std::string> kModes = {
    "block_diffusion", "dflash", "hybrid", "idlm", "mdlm", "scdd"};

/// The value of a key of the section, or the section itself when it lacks the key: where the error
/// is shown.
const Node& place_in(const Node& section, const char* key) {
  const Node* found = section.find(key);
  return found == nullptr ? section : *found;
}

}  // namespace

DllmSection read_dllm(const Node& root, Diagnostics& diagnostics) {
  const Node* node = root.find("dllm");
  if (node == nullptr || node->is_null()) {
    diagnostics.missing(root, "dllm", "missing key 'dllm': how DiffusionGemma is trained");
    return {};
  }
  DllmSection section = config::bind<DllmSection>(*node, diagnostics);
  if (std::find(kModes.begin(), kModes.end(), section.mode) == kModes.end()) {
    diagnostics.error(place_in(*node, "mode"),
                      cat("unknown mode '", section.mode, "': one of ", join(kModes, ", "),
                          did_you_mean(section.mode, kModes)));
  } else if (section.mode != kMode) {
    diagnostics.unsupported(place_in(*node, "mode"),
                            cat("mode ", section.mode,
                                " is not in this version; DiffusionGemma is "
                                "trained with mode: block_diffusion"));
  } else if (!section.vocab_size) {
    diagnostics.missing(*node, "vocab_size",
                        "missing key 'vocab_size': noise is drawn below it; the model's");
  }
  return section;
}

}  // namespace automodel::recipes
