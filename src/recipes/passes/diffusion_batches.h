#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>

#include "core/json.h"
#include "datasets/loading/window_collate.h"
#include "datasets/samples/text_encoder.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The position of a micro-batch in the training data, in the loader's order.
struct MicroBatchPlace {
  int64_t step = 0;
  int64_t micro_batch = 0;  ///< number within the step, on this rank
  int64_t dp_rank = 0;
  int64_t dp_size = 1;
  int64_t grad_acc_steps = 1;
};

/// The seed of a row's noise. It follows from the example's position in the shuffled data, so noise
/// does not depend on ranks and micro-batches. Upstream's corruption_sample_seed.
int64_t corruption_sample_seed(int64_t base_seed, const MicroBatchPlace& place,
                               int64_t local_batch_size, int64_t offset);

/// torch's CPU generator with a seed.
at::Generator seeded_generator(int64_t seed);

/// How a recipe's samples become batches. Padding and end-of-sequence use the tokenizer's ids;
/// without these 0 and the padding id.
datasets::WindowCollaterConfig window_collater_of(const Recipe& recipe,
                                                  const datasets::TextEncoder& encoder);

/// Gives a step's record the form of upstream's recipes of diffusion: their names of token counts,
/// and dllm_loss, draft_acc and mode.
void describe_diffusion(Json& record, double dllm_loss, const std::string& mode);

}  // namespace automodel::recipes
