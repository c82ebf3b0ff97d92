#pragma once

#include "config/diagnostic.h"
#include "config/load.h"
#include "core/file.h"
#include "core/reporter.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// How much of what a recipe names on the hub a command fetches. What is in the cache is never
/// fetched again, and nothing is with HF_HUB_OFFLINE.
enum class HubFetch {
  kConfig,        ///< config.json of the model
  kDescriptions,  ///< and tokenizers, listings of data sets and their README.md
  kData,          ///< and data files
  kAll,           ///< and weights
};

/// Reads a recipe after what it names on the hub was fetched. What the hub refuses (a name that is
/// not there, a gated model) is a finding at the key; a hub that cannot be reached is a note where
/// `is_run` is false, else a HubError. Not for kData and kAll. `diagnostics` is empty.
Recipe read_with_hub(const config::Document& document, HubFetch what, bool is_run,
                     Reporter& reporter, config::Diagnostics& diagnostics);

/// Whether a model of the hub has weights that are not on this machine yet.
bool awaits_weights(const ModelPlan& model);

/// Fetches everything that a run of a recipe reads, or all but weights (kData). `bytes` counts
/// them. Throws HubError, InputError.
void fetch_inputs(const Recipe& recipe, Reporter& reporter, ByteCounter& bytes,
                  HubFetch what = HubFetch::kAll);

}  // namespace automodel::recipes
