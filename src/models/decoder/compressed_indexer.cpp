#include "models/decoder/compressed_indexer.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "kernels/attention/key_choice.h"
#include "tensor/dtype.h"

namespace automodel::models::decoder {

CompressedIndexer::CompressedIndexer(const DecoderConfig& config, int rope, at::ScalarType dtype)
    : options_(config.compressed_attention->indexer), rope_(rope) {
  compressor_ = register_module(
      "compressor",
      std::make_shared<Compressor>(config,
                                   CompressorOptions{.compression = Compression::kSparse,
                                                     .head_dim = options_.head_dim,
                                                     .is_trained = false},
                                   dtype));
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(
        name,
        std::make_shared<nn::Linear>(
            nn::LinearOptions{.in_features = in, .out_features = out, .takes_adapters = false},
            dtype));
  };
  q_b_proj_ = linear("q_b_proj", config.compressed_attention->q_rank,
                     options_.num_heads * options_.head_dim);
  weights_proj_ = linear("weights_proj", config.hidden_size, options_.num_heads);
  for (at::Tensor& parameter : parameters()) parameter.set_requires_grad(false);
}

at::Tensor CompressedIndexer::choose(const at::Tensor& x, const at::Tensor& latent,
                                     const ForwardContext& context) const {
  const kernels::CompressedWindows& windows = context.compressed.sparse;
  if (windows.num_windows() <= options_.num_chosen) return {};  // all of them
  const at::NoGradGuard no_grad;
  const kernels::RopeTable& rope = context.ropes[static_cast<size_t>(rope_)];
  const at::Tensor q =
      q_b_proj_->forward(latent).unflatten(-1, {options_.num_heads, options_.head_dim});
  kernels::IndexerScores scores;
  scores.q = kernels::rotate_last_pairs(q, rope, context.position_ids);
  scores.k = compressor_->forward(x, windows, rope);
  const at::ScalarType wide = tensor::wide_dtype(x.scalar_type());
  scores.weights =
      weights_proj_->forward(x).to(wide) / std::sqrt(static_cast<double>(options_.num_heads));
  scores.scale = 1.0 / std::sqrt(static_cast<double>(options_.head_dim));
  return kernels::choose_keys(
      scores, {.num_chosen = options_.num_chosen, .visible_keys = windows.visible_keys});
}

}  // namespace automodel::models::decoder
