#pragma once

#include "config/diagnostic.h"
#include "config/load.h"
#include "core/file.h"
#include "core/reporter.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// What a command fetches of the things that a recipe names on the hub. Nothing that is in the
/// cache is fetched again, and nothing at all with HF_HUB_OFFLINE.
enum class HubFetch {
  kConfig,        ///< the model's config.json
  kDescriptions,  ///< the same, tokenizers, and data sets' file lists and README.md
  kData,          ///< the same and data files
  kAll,           ///< the same and weights
};

/// Fetches what a recipe names on the hub, then reads the recipe. What the hub refuses (an unknown
/// name, a gated model) is a finding at the key; when the hub cannot be reached, this adds a note
/// if `is_run` is false and throws HubError if it is true. `what` is kConfig or kDescriptions;
/// `diagnostics` is empty.
Recipe read_with_hub(const config::Document& document, HubFetch what, bool is_run,
                     Reporter& reporter, config::Diagnostics& diagnostics);

/// Whether the model is on the hub and its weights are not on this machine yet.
bool awaits_weights(const ModelRecipe& model);

/// Fetches everything that a run of a recipe reads, or with kData everything but weights. `bytes`
/// counts the bytes. Throws HubError, InputError.
void fetch_inputs(const Recipe& recipe, Reporter& reporter, ByteCounter& bytes,
                  HubFetch what = HubFetch::kAll);

}  // namespace automodel::recipes
