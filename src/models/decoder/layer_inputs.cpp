#include "models/decoder/layer_inputs.h"

#include <ATen/ATen.h>

#include <cmath>

namespace automodel::models::decoder {

LayerInputs::LayerInputs(const DecoderConfig& config, at::ScalarType dtype)
    : num_layers_(config.num_layers()),
      dim_(config.layer_inputs->dim),
      projection_scale_(1.0 / std::sqrt(static_cast<double>(config.hidden_size))) {
  const int64_t all = num_layers_ * dim_;
  embed_tokens_ = register_module(
      "embed_tokens",
      std::make_shared<nn::Embedding>(
          nn::EmbeddingOptions{config.layer_inputs->vocab_size, all, config.padding_idx}, dtype));
  projection_ = register_module(
      "projection",
      std::make_shared<nn::Linear>(nn::LinearOptions{config.hidden_size, all}, dtype));
  norm_ = register_module("norm", std::make_shared<nn::RmsNorm>(
                                      dim_, kernels::NormOptions{.eps = config.norm_eps}, dtype));
}

std::vector<at::Tensor> LayerInputs::forward(const at::Tensor& token_ids,
                                             const at::Tensor& embedded) const {
  const at::Tensor rows = embed_tokens_->forward(token_ids);
  // The scale of a table is rounded to the table's dtype, as that of the embedding.
  const double scale = at::scalar_tensor(std::sqrt(static_cast<double>(dim_)),
                                         at::TensorOptions().dtype(rows.scalar_type()))
                           .item<double>();
  const auto by_layer = [&](const at::Tensor& x) { return x.unflatten(-1, {num_layers_, dim_}); };
  // An embedding that is a unit of its own gives its output in output_dtype.
  const at::Tensor embedded_here = embedded.to(rows.scalar_type());
  const at::Tensor projected = norm_->forward(
      by_layer(projection_->forward(embedded_here) * projection_scale_).contiguous());
  const at::Tensor inputs = (projected + by_layer(rows * scale)) * std::sqrt(0.5);
  // One node hands the layers theirs, and takes all gradients at once.
  return inputs.permute({2, 0, 1, 3}).contiguous().unbind(0);
}

}  // namespace automodel::models::decoder
