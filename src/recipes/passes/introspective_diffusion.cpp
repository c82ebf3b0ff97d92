#include "recipes/passes/introspective_diffusion.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "kernels/attention/two_part_attention.h"

namespace automodel::recipes {

namespace {

/// The token after each position where that one is supervised and no padding.
at::Tensor next_supervised(const at::Tensor& labels, const at::Tensor& padding_mask,
                           int64_t ignore_index) {
  at::Tensor next = at::full_like(labels, ignore_index);
  const int64_t pairs = labels.size(1) - 1;
  at::Tensor ahead = labels.narrow(1, 1, pairs);
  if (padding_mask.defined()) {
    ahead = ahead.masked_fill(padding_mask.narrow(1, 1, pairs), ignore_index);
  }
  next.narrow(1, 0, pairs).copy_(ahead);
  return next;
}

class IntrospectiveDiffusion final : public DiffusionObjective {
 public:
  IntrospectiveDiffusion(models::MaskedDenoiser& model,
                         const IntrospectiveDiffusionOptions& options)
      : model_(model), options_(options) {}

  const char* mode() const override { return "idlm"; }

  NoisedBatch noised(const tensor::Batch& batch, const MicroBatchPlace&) const override {
    const at::Tensor& ids = batch.input_ids;
    const at::Tensor hidden =
        ids.masked_fill(batch.labels.ne(options_.ignore_index), options_.mask_token_id);
    const at::Tensor labels =
        next_supervised(batch.labels, batch.padding_mask, options_.ignore_index);
    const at::Tensor places = at::arange(ids.size(1), ids.options()).expand_as(ids);
    NoisedBatch out;
    out.batch.input_ids = at::cat({ids, hidden}, 1);
    out.batch.labels = at::cat({labels, labels}, 1);
    out.batch.position_ids = at::cat({places, places}, 1);
    out.batch.num_positions = ids.size(1);
    if (batch.padding_mask.defined()) {
      out.batch.padding_mask = at::cat({batch.padding_mask, batch.padding_mask}, 1);
    }
    return out;
  }

  DiffusionLoss loss(const NoisedBatch& batch, double divisor) const override {
    const int64_t length = batch.batch.sequence_length() / 2;
    std::vector<models::ScoredRun> halves;
    for (int64_t half = 0; half < 2 * batch.batch.num_sequences(); ++half) {
      halves.push_back({half * length, length});
    }
    const at::Tensor sums =
        model_.losses_of_runs(batch.batch, halves, divisor, options_.ignore_index)
            .view({-1, 2})
            .sum(0);
    const at::Tensor clean = sums[0];
    const at::Tensor hidden = sums[1];
    const at::Tensor weight = options_.balances_clean_loss
                                  ? (hidden / clean.clamp_min(1e-6)).detach()
                                  : at::scalar_tensor(weight_, clean.options());
    return {hidden + weight * clean, hidden.detach()};
  }

 private:
  models::MaskedDenoiser& model_;
  IntrospectiveDiffusionOptions options_;
  /// clean_loss_weight, or the largest float32 where that is less.
  double weight_ = std::min<double>(options_.clean_loss_weight, std::numeric_limits<float>::max());
};

class PairedAttentionCore final : public nn::AttentionCore {
 public:
  explicit PairedAttentionCore(int64_t block_length) : block_length_(block_length) {}

  kernels::AttentionResult attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const kernels::AttentionOptions& options) override {
    AM_CHECK(options.is_causal && options.window == 0 && options.softcap == 0 &&
                 !options.dropout.mask.drops() && !options.chosen_keys.defined(),
             "attention that a text and its hidden copy do not have");
    const int64_t length = q.size(1) / 2;
    const auto half = [&](const at::Tensor& x, int64_t index) {
      return x.narrow(1, index * length, length);
    };
    kernels::AttentionOptions own;
    own.scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
    own.sinks = options.sinks;
    if (options.padding_mask.defined()) own.padding_mask = half(options.padding_mask, 0);
    const at::Tensor text = kernels::causal_attention(half(q, 0), half(k, 0), half(v, 0), own).out;
    const at::Tensor ends = block_ends(q.size(0), length, own.padding_mask);
    const at::Tensor begin = ends.select(-1, 0);
    const kernels::AttentionPart before{half(k, 0), half(v, 0),
                                        at::stack({at::zeros_like(begin), begin}, -1)};
    const kernels::AttentionPart block{half(k, 1), half(v, 1), ends};
    const at::Tensor copy = kernels::two_part_attention(
        half(q, 1), before, block, {.scale = own.scale, .sinks = options.sinks});
    return {at::cat({text, copy}, 1), {}};
  }

 private:
  /// [B, L, 2]: the run of the copy that each of its positions sees, without padding.
  at::Tensor block_ends(int64_t num_sequences, int64_t length, const at::Tensor& padding) const {
    const at::Tensor places = at::arange(length, at::TensorOptions().dtype(at::kLong));
    const at::Tensor begin = places.div(block_length_, "floor") * block_length_;
    at::Tensor ends = at::stack({begin, places + 1}, -1).expand({num_sequences, length, 2});
    if (padding.defined()) {
      const at::Tensor counts = padding.cpu().logical_not().sum(1).view({-1, 1, 1});
      ends = at::minimum(ends, counts);
    }
    return ends.contiguous();
  }

  int64_t block_length_;
};

}  // namespace

std::unique_ptr<DiffusionObjective> make_introspective_diffusion(
    models::MaskedDenoiser& model, const IntrospectiveDiffusionOptions& options) {
  return std::make_unique<IntrospectiveDiffusion>(model, options);
}

std::shared_ptr<nn::AttentionCore> make_paired_attention_core(int64_t block_length) {
  return std::make_shared<PairedAttentionCore>(block_length);
}

}  // namespace automodel::recipes
