#pragma once

#include <cstdint>
#include <memory>

#include "models/masked_denoiser.h"
#include "recipes/passes/diffusion_objective.h"

namespace automodel::recipes {

/// How tokens are hidden.
struct MaskedDiffusionOptions {
  int64_t seed = 42;
  double eps = 1e-3;          ///< least probability of a token to be hidden
  int64_t mask_token_id = 0;  ///< what stands in a hidden token's place
  int64_t ignore_index = -100;
};

/// Mode mdlm. In each row the supervised tokens are hidden, each with one probability drawn for the
/// row from [eps, 1); a sequence's loss is the cross-entropy of its hidden tokens divided by that
/// probability. Attention sees all of a batch, padding too, as upstream's does. Uses torch's CPU
/// generator in upstream's order: for each row its number in [0, 1), then S numbers.
std::unique_ptr<DiffusionObjective> make_masked_diffusion(models::MaskedDenoiser& model,
                                                          const MaskedDiffusionOptions& options);

}  // namespace automodel::recipes
