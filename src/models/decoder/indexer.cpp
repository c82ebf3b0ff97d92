#include "models/decoder/indexer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "kernels/attention/key_choice.h"
#include "tensor/dtype.h"

namespace automodel::models::decoder {

Indexer::Indexer(const DecoderConfig& config, int rope, at::ScalarType dtype)
    : options_(*config.indexer), rope_(rope), rotated_dim_(config.latent_attention->rotated_dim) {
  constexpr double kNormEps = 1e-6;  // whatever the model's is
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(
        name,
        std::make_shared<nn::Linear>(
            nn::LinearOptions{.in_features = in, .out_features = out, .takes_adapters = false},
            dtype));
  };
  q_proj_ =
      linear("q_proj", config.latent_attention->q_rank, options_.num_heads * options_.head_dim);
  k_proj_ = linear("k_proj", config.hidden_size, options_.head_dim);
  k_norm_ = register_module(
      "k_norm", std::make_shared<nn::LayerNorm>(options_.head_dim,
                                                nn::LayerNormOptions{.eps = kNormEps}, dtype));
  weights_proj_ = linear("weights_proj", config.hidden_size, options_.num_heads);
  for (at::Tensor& parameter : parameters()) parameter.set_requires_grad(false);
}

/// Rotates the first dims of x [B, S, heads, D].
at::Tensor Indexer::rotated(const at::Tensor& x, const ForwardContext& context) const {
  at::Tensor ordered = x;
  if (options_.is_rope_interleaved) {
    const at::Tensor halves =
        x.narrow(-1, 0, rotated_dim_).unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2);
    ordered = at::cat({halves, x.narrow(-1, rotated_dim_, x.size(-1) - rotated_dim_)}, -1);
  }
  const kernels::RopeTable& rope = context.ropes[static_cast<size_t>(rope_)];
  return kernels::rotate(ordered, rope, context.position_ids);
}

at::Tensor Indexer::choose(const at::Tensor& x, const at::Tensor& latent,
                           const ForwardContext& context) const {
  const at::NoGradGuard no_grad;
  kernels::IndexerScores scores;
  const at::Tensor q =
      q_proj_->forward(latent).unflatten(-1, {options_.num_heads, options_.head_dim});
  scores.q = rotated(q, context);
  scores.k = rotated(k_norm_->forward(k_proj_->forward(x)).unsqueeze(2), context).squeeze(2);
  const at::ScalarType wide = tensor::wide_dtype(x.scalar_type());
  scores.weights =
      weights_proj_->forward(x).to(wide) / std::sqrt(static_cast<double>(options_.num_heads));
  scores.scale = 1.0 / std::sqrt(static_cast<double>(options_.head_dim));
  return kernels::choose_keys(scores, {.num_chosen = options_.num_chosen,
                                       .padding_mask = context.padding_mask,
                                       .document_ids = context.document_ids});
}

}  // namespace automodel::models::decoder
