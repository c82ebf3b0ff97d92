#include "recipes/passes/block_diffusion_pass.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "comm/groups/sums.h"
#include "core/error.h"

namespace automodel::recipes {

namespace {

using models::BlockDiffusionBatch;

double num_labelled(const at::Tensor& labels, int64_t ignore_index) {
  return static_cast<double>(labels.ne(ignore_index).sum().item<int64_t>());
}

}  // namespace

BlockDiffusionPassOptions block_diffusion_options(const Recipe& recipe,
                                                  const models::BlockDenoiser& model) {
  const DllmSection& dllm = recipe.dllm.value();
  BlockDiffusionPassOptions options;
  options.diffusion = {.seed = recipe.seed,
                       .eps = dllm.eps,
                       .vocab_size = dllm.vocab_size.value(),
                       .block_size = dllm.block_size.value_or(model.canvas_length()),
                       .self_conditioning_p = dllm.self_conditioning_p};
  options.encoder_loss_weight = dllm.encoder_loss_weight;
  options.ignore_index = recipe.loss.ignore_index;
  return options;
}

BlockDiffusionPass::BlockDiffusionPass(models::BlockDenoiser& model, distributed::Engine& engine,
                                       BlockDiffusionPassOptions options)
    : model_(model), engine_(engine), options_(std::move(options)) {}

BlockDiffusionBatch BlockDiffusionPass::noised(const tensor::Batch& batch, int64_t step,
                                               int64_t micro_batch) const {
  const MicroBatchPlace place{.step = step,
                              .micro_batch = micro_batch,
                              .dp_rank = options_.data_ranks.rank(),
                              .dp_size = options_.data_ranks.size(),
                              .grad_acc_steps = options_.grad_acc_steps};
  return make_block_diffusion_batch(batch, place, options_.diffusion, options_.ignore_index);
}

void BlockDiffusionPass::begin_step(const std::vector<tensor::Batch>& batches, int64_t step) {
  prepared_.clear();
  canvas_loss_ = 0;
  std::vector<double> counts(2, 0.0);
  for (size_t i = 0; i < batches.size(); ++i) {
    prepared_.push_back(noised(batches[i], step, static_cast<int64_t>(i)));
    counts[0] += num_labelled(prepared_.back().canvas_labels, options_.ignore_index);
    counts[1] += num_labelled(prepared_.back().text_labels, options_.ignore_index);
  }
  counts = comm::sum_over(options_.data_ranks, std::move(counts));
  // The engine averages gradients over its ranks: dividing by count / num_ranks makes that a sum
  // over all ranks divided by the count.
  const double num_ranks = engine_.group().size();
  scale_.canvas_divisor = std::max(counts[0], 1.0) / num_ranks;
  scale_.text_divisor = std::max(counts[1], 1.0) / num_ranks;
  scale_.text_weight = options_.encoder_loss_weight;
}

tensor::TokenCounts BlockDiffusionPass::count(const tensor::Batch& batch,
                                              int64_t ignore_index) const {
  tensor::TokenCounts counts = training::count_tokens(batch, ignore_index);
  counts.num_tokens = batch.input_ids.numel();
  return counts;
}

double BlockDiffusionPass::train(const tensor::Batch&, double, const training::BatchPlace& place) {
  AM_CHECK(!prepared_.empty(), "a micro-batch of a step that was not begun");
  const BlockDiffusionBatch batch = prepared_.front().to(options_.device);
  prepared_.pop_front();
  engine_.begin_micro_batch(place.is_last);
  const auto loss = model_.block_diffusion_loss(batch, scale_, options_.ignore_index);
  loss.total.backward();
  engine_.end_micro_batch();
  canvas_sum_.add(loss.canvas);
  total_sum_.add(loss.total);
  return 0;
}

double BlockDiffusionPass::known_everywhere(double loss) {
  canvas_loss_ += canvas_sum_.take();
  return loss + total_sum_.take() / engine_.group().size();
}

void BlockDiffusionPass::describe(Json& record) const {
  const double num_ranks = engine_.group().size();
  const double canvas_loss = comm::sum_over(engine_.group(), canvas_loss_ / num_ranks);
  describe_diffusion(record, static_cast<double>(static_cast<float>(canvas_loss)),
                     "block_diffusion");
}

void BlockDiffusionPass::begin_validation(tensor::Batch& batch, int64_t step) {
  BlockDiffusionBatch prepared = noised(batch, step, 0);
  prepared.text_labels = at::Tensor();
  prepared.is_conditioned = at::Tensor();
  batch.labels = prepared.canvas_labels;
  batch.padding_mask = at::Tensor();
  prepared_ = {std::move(prepared)};
}

double BlockDiffusionPass::evaluate(const tensor::Batch&, int64_t) {
  AM_CHECK(prepared_.size() == 1, "a validation batch that was not begun");
  const BlockDiffusionBatch batch = prepared_.front().to(options_.device);
  prepared_.clear();
  engine_.begin_micro_batch(true);
  const auto loss = model_.block_diffusion_loss(batch, {}, options_.ignore_index);
  engine_.end_micro_batch();
  return loss.total.item<double>();
}

}  // namespace automodel::recipes
