#pragma once

#include <cstdint>
#include <memory>

#include "models/causal_lm.h"
#include "recipes/passes/diffusion_objective.h"

namespace automodel::recipes {

/// How tokens are hidden and exchanged.
struct CorrectingDiffusionOptions {
  int64_t seed = 42;
  double eps = 1e-3;  ///< least time of the noise
  int64_t mask_token_id = 0;
  int64_t vocab_size = 0;  ///< of the model, the mask among it
  int64_t num_timesteps = 1000;
  double uniform_ratio = 0.1;   ///< most exchanged tokens for each one that is kept
  double schedule_shape = 1.0;  ///< how much exchanges crowd around schedule_peak
  double schedule_peak = 0.5;   ///< the time at which most are exchanged
  int64_t ignore_index = -100;
};

/// Mode scdd (SCDD, arXiv:2603.02230). Of each row's supervised tokens some are hidden and some are
/// exchanged for other ones, by a time drawn for the row from the grid of num_timesteps; the loss
/// is the bound on all supervised tokens' likelihood in discrete time. With uniform_ratio 0 it is
/// that of mode mdlm. Uses torch's CPU generator in upstream's order. The logits of a micro-batch's
/// supervised tokens are whole in memory.
std::unique_ptr<DiffusionObjective> make_correcting_diffusion(
    models::CausalLM& model, const CorrectingDiffusionOptions& options);

}  // namespace automodel::recipes
