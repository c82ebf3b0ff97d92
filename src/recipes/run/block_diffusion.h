#pragma once

#include <cstdint>

#include "models/diffusion_gemma/canvas.h"
#include "tensor/batch.h"

namespace automodel::recipes {

/// Where a micro-batch stands among all data, as the loader deals them.
struct MicroBatchPlace {
  int64_t step = 0;
  int64_t micro_batch = 0;  ///< of this rank, inside the step
  int64_t dp_rank = 0;
  int64_t dp_size = 1;
  int64_t grad_acc_steps = 1;
};

/// How a batch is noised and which of it is scored.
struct BlockDiffusionOptions {
  int64_t seed = 42;
  double eps = 1e-3;
  int64_t vocab_size = 0;  ///< replacements are drawn below it
  int64_t block_size = 0;
  double self_conditioning_p = 0.5;
};

/// The seed of a row's noise: that of the example's position in the shuffled data, so that noise
/// does not depend on ranks and micro-batches. Upstream's corruption_sample_seed.
int64_t corruption_sample_seed(int64_t base_seed, const MicroBatchPlace& place,
                               int64_t local_batch_size, int64_t offset);

/// ids [B, S] where each token that counts is replaced, with a probability drawn for its row from
/// [eps, 1), by a token drawn from [0, vocab_size). is_counted [B, S] bool. Draws are those of
/// torch's CPU generator in upstream's order: a row's level, its S noises, its S tokens.
at::Tensor corrupt_uniform_random(const at::Tensor& ids, const at::Tensor& is_counted,
                                  const MicroBatchPlace& place,
                                  const BlockDiffusionOptions& options);

/// A batch of window_collater, noised: its responses as canvases, of each of which one block, drawn
/// for the row, has labels. Text labels and conditioning are those of training.
models::BlockDiffusionBatch make_block_diffusion_batch(const tensor::Batch& batch,
                                                       const MicroBatchPlace& place,
                                                       const BlockDiffusionOptions& options,
                                                       int64_t ignore_index);

}  // namespace automodel::recipes
