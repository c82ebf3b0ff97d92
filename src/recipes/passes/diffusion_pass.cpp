#include "recipes/passes/diffusion_pass.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "comm/groups/sums.h"
#include "core/error.h"

namespace automodel::recipes {

DiffusionPass::DiffusionPass(models::CausalLM& model, distributed::Engine& engine,
                             std::unique_ptr<DiffusionObjective> objective,
                             DiffusionPassOptions options)
    : engine_(engine), objective_(std::move(objective)), options_(std::move(options)) {
  const auto loss = [this, &model](const tensor::Batch&, double divisor, int64_t step,
                                   int64_t micro_batch) {
    model.set_dropout_context({static_cast<uint64_t>(options_.seed), step, micro_batch});
    const DiffusionLoss all = objective_->loss(current_, divisor);
    if (all.denoising.defined()) {
      denoising_ = denoising_.defined() ? denoising_ + all.denoising : all.denoising;
    }
    return all.total;
  };
  plain_ = training::make_plain_pass(engine, loss);
}

NoisedBatch DiffusionPass::noised(const tensor::Batch& batch, int64_t step,
                                  int64_t micro_batch) const {
  return objective_->noised(batch, {.step = step,
                                    .micro_batch = micro_batch,
                                    .dp_rank = options_.data_ranks.rank(),
                                    .dp_size = options_.data_ranks.size(),
                                    .grad_acc_steps = options_.grad_acc_steps});
}

void DiffusionPass::advance() {
  AM_CHECK(!prepared_.empty(), "a batch that was not begun");
  current_ = prepared_.front().to(options_.device);
  prepared_.pop_front();
}

void DiffusionPass::begin_step(const std::vector<tensor::Batch>& batches, int64_t step) {
  denoising_ = at::Tensor();
  prepared_.clear();
  for (size_t i = 0; i < batches.size(); ++i) {
    prepared_.push_back(noised(batches[i], step, static_cast<int64_t>(i)));
  }
}

tensor::TokenCounts DiffusionPass::count(const tensor::Batch& batch, int64_t ignore_index) const {
  tensor::TokenCounts counts = training::count_tokens(batch, ignore_index);
  counts.num_tokens = batch.input_ids.numel();
  return counts;
}

double DiffusionPass::train(const tensor::Batch&, double divisor,
                            const training::BatchPlace& place) {
  advance();
  return plain_->train(current_.batch, divisor, place);
}

void DiffusionPass::begin_validation(tensor::Batch& batch, int64_t step) {
  prepared_.clear();
  prepared_.push_back(noised(batch, step, 0));
}

double DiffusionPass::evaluate(const tensor::Batch&, int64_t index) {
  advance();
  return plain_->evaluate(current_.batch, index);
}

void DiffusionPass::describe(Json& record) const {
  double denoising = record.at("loss").as_double();
  if (denoising_.defined()) {
    const double num_ranks = engine_.group().size();
    denoising = comm::sum_over(engine_.group(), denoising_.item<double>() / num_ranks);
    denoising = static_cast<float>(denoising);
  }
  describe_diffusion(record, denoising, objective_->mode());
}

}  // namespace automodel::recipes
