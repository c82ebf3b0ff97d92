#include "recipes/passes/block_diffusion.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace automodel::recipes {

namespace {

using models::BlockDiffusionBatch;

// Upstream adds 1 << 42 and 2 << 42 to tell streams apart, but torch's CPU generator keeps the low
// 32 bits of a seed: the block's draw and the coin are the same numbers there, and here.
constexpr int64_t kBlockStream = int64_t{1} << 42;

int64_t step_seed(const BlockDiffusionOptions& options, const MicroBatchPlace& place) {
  return options.seed + 7919 * place.step + place.micro_batch;
}

/// [B]: position of the first token that counts; the row's length when there is none.
at::Tensor first_counted(const at::Tensor& is_counted) {
  const at::Tensor first = is_counted.to(at::kLong).argmax(1);
  return at::where(is_counted.any(1), first, at::full_like(first, is_counted.size(1)));
}

/// Next-token labels, where neither this token nor the next one is padding.
at::Tensor next_token_labels(const at::Tensor& ids, const at::Tensor& is_token,
                             int64_t ignore_index) {
  at::Tensor labels = at::full_like(ids, ignore_index);
  const int64_t pairs = ids.size(1) - 1;
  const at::Tensor is_pair = is_token.narrow(1, 0, pairs).logical_and(is_token.narrow(1, 1, pairs));
  labels.narrow(1, 0, pairs)
      .copy_(at::where(is_pair, ids.narrow(1, 1, pairs), labels.narrow(1, 0, pairs)));
  return labels;
}

/// [B]: number of the block of each response that is scored.
at::Tensor chosen_blocks(const at::Tensor& response_lengths, const MicroBatchPlace& place,
                         const BlockDiffusionOptions& options) {
  const at::Tensor num_blocks =
      ((response_lengths - 1).clamp_min(0).div(options.block_size, "floor") + 1).clamp_min(1);
  const at::Tensor draws = at::rand({response_lengths.size(0)},
                                    seeded_generator(step_seed(options, place) + kBlockStream));
  return at::floor(draws * num_blocks.to(at::kFloat)).to(at::kLong);
}

}  // namespace

at::Tensor corrupt_uniform_random(const at::Tensor& ids, const at::Tensor& is_counted,
                                  const MicroBatchPlace& place,
                                  const BlockDiffusionOptions& options) {
  const int64_t length = ids.size(1);
  std::vector<at::Tensor> rows;
  for (int64_t row = 0; row < ids.size(0); ++row) {
    const at::Generator generator =
        seeded_generator(corruption_sample_seed(options.seed, place, ids.size(0), row));
    const at::Tensor level = at::rand({1, 1}, generator) * (1.0 - options.eps) + options.eps;
    const at::Tensor is_noise =
        at::rand({1, length}, generator).lt(level).logical_and(is_counted.narrow(0, row, 1));
    const at::Tensor noise =
        at::randint(0, options.vocab_size, {1, length}, generator, ids.options());
    rows.push_back(at::where(is_noise, noise, ids.narrow(0, row, 1)));
  }
  return at::cat(rows);
}

BlockDiffusionBatch make_block_diffusion_batch(const tensor::Batch& batch,
                                               const MicroBatchPlace& place,
                                               const BlockDiffusionOptions& options,
                                               int64_t ignore_index) {
  const at::Tensor& ids = batch.input_ids;
  const int64_t length = ids.size(1);
  const at::Tensor is_counted = batch.labels.ne(ignore_index);
  const at::Tensor is_token = batch.padding_mask.defined() ? batch.padding_mask.logical_not()
                                                           : at::ones_like(ids, at::kBool);
  BlockDiffusionBatch out;
  out.input_ids = ids;
  out.padding_mask = batch.padding_mask;
  out.text_labels = next_token_labels(ids, is_token, ignore_index);
  out.block_size = options.block_size;
  out.prefix_lengths = first_counted(is_counted);
  out.response_lengths = (is_token.sum(1) - out.prefix_lengths).clamp_min(0);
  const int64_t width = std::max<int64_t>(1, out.response_lengths.max().item<int64_t>());
  const at::Tensor offsets = at::arange(width, ids.options()).unsqueeze(0);
  const at::Tensor places = out.prefix_lengths.unsqueeze(1) + offsets;
  const at::Tensor source = places.clamp_max(length - 1);
  const at::Tensor noised = corrupt_uniform_random(ids, is_counted, place, options);
  out.canvas_ids = noised.gather(1, source);
  const at::Tensor is_chosen =
      offsets.div(options.block_size, "floor")
          .eq(chosen_blocks(out.response_lengths, place, options).unsqueeze(1));
  const at::Tensor is_scored = is_counted.gather(1, source)
                                   .logical_and(offsets.lt(out.response_lengths.unsqueeze(1)))
                                   .logical_and(is_chosen);
  const at::Tensor targets = ids.gather(1, source);
  out.canvas_labels = at::where(is_scored, targets, at::full_like(targets, ignore_index));
  out.is_conditioned = at::rand({ids.size(0)}, seeded_generator(step_seed(options, place)))
                           .lt(options.self_conditioning_p);
  return out;
}

}  // namespace automodel::recipes
