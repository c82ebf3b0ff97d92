#pragma once

#include <cstdint>

#include "models/diffusion_gemma/canvas.h"
#include "recipes/passes/diffusion_batches.h"
#include "tensor/batch.h"

namespace automodel::recipes {

/// How noise is added to a batch, and which block is scored.
struct BlockDiffusionOptions {
  int64_t seed = 42;
  double eps = 1e-3;
  int64_t vocab_size = 0;  ///< random replacements are below it
  int64_t block_size = 0;
  double self_conditioning_p = 0.5;
};

/// Returns ids [B, S] with random replacements: each token for which is_counted [B, S] (bool) is
/// true is replaced by one drawn from [0, vocab_size), with a probability drawn for its row from
/// [eps, 1). Uses torch's CPU generator in upstream's order: for each row its probability, S
/// noises, S tokens.
at::Tensor corrupt_uniform_random(const at::Tensor& ids, const at::Tensor& is_counted,
                                  const MicroBatchPlace& place,
                                  const BlockDiffusionOptions& options);

/// Adds noise to a batch of window_collater. Its responses become canvases; of each canvas only one
/// block, drawn for the row, has labels. Text labels and self-conditioning are as in training.
models::BlockDiffusionBatch make_block_diffusion_batch(const tensor::Batch& batch,
                                                       const MicroBatchPlace& place,
                                                       const BlockDiffusionOptions& options,
                                                       int64_t ignore_index);

}  // namespace automodel::recipes
