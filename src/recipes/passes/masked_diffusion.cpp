#include "recipes/passes/masked_diffusion.h"

#include <ATen/ATen.h>

#include <vector>

namespace automodel::recipes {

namespace {

class MaskedDiffusion final : public DiffusionObjective {
 public:
  MaskedDiffusion(models::MaskedDenoiser& model, const MaskedDiffusionOptions& options)
      : model_(model), options_(options) {}

  const char* mode() const override { return "mdlm"; }

  NoisedBatch noised(const tensor::Batch& batch, const MicroBatchPlace& place) const override {
    const at::Tensor& ids = batch.input_ids;
    std::vector<at::Tensor> are_hidden, weights;
    for (int64_t row = 0; row < ids.size(0); ++row) {
      const at::Generator generator =
          seeded_generator(corruption_sample_seed(options_.seed, place, ids.size(0), row));
      const at::Tensor probability = at::rand({1}, generator) * (1.0 - options_.eps) + options_.eps;
      are_hidden.push_back(at::rand({1, ids.size(1)}, generator).lt(probability));
      weights.push_back(probability.clamp_min(1e-8).reciprocal());
    }
    const at::Tensor is_hidden =
        at::cat(are_hidden).logical_and(batch.labels.ne(options_.ignore_index));
    NoisedBatch out;
    out.batch.input_ids = ids.masked_fill(is_hidden, options_.mask_token_id);
    out.batch.labels = at::where(is_hidden, ids, at::full_like(ids, options_.ignore_index));
    out.weights = at::cat(weights);
    return out;
  }

  DiffusionLoss loss(const NoisedBatch& batch, double divisor) const override {
    const int64_t length = batch.batch.sequence_length();
    std::vector<models::ScoredRun> rows;
    for (int64_t row = 0; row < batch.batch.num_sequences(); ++row) {
      rows.push_back({row * length, length});
    }
    const at::Tensor losses =
        model_.losses_of_runs(batch.batch, rows, divisor, options_.ignore_index);
    return {(losses * batch.weights).sum(), {}};
  }

 private:
  models::MaskedDenoiser& model_;
  MaskedDiffusionOptions options_;
};

}  // namespace

std::unique_ptr<DiffusionObjective> make_masked_diffusion(models::MaskedDenoiser& model,
                                                          const MaskedDiffusionOptions& options) {
  return std::make_unique<MaskedDiffusion>(model, options);
}

}  // namespace automodel::recipes
