#include "models/diffusion_gemma/canvas_attention.h"

#include <ATen/ATen.h>

#include "kernels/attention/two_part_attention.h"
#include "kernels/layers/norm.h"

namespace automodel::models::diffusion_gemma {

DiffusionAttention::DiffusionAttention(const DiffusionGemmaConfig& config, size_t layer,
                                       at::ScalarType dtype)
    : shape_(config.layers[layer]), window_(shape_.is_sliding ? config.window : 0) {
  const decoder::DecoderConfig& text = config.text;
  options_.num_heads = text.num_heads;
  options_.num_kv_heads = shape_.num_kv_heads;
  options_.head_dim = shape_.head_dim;
  options_.norm = {.eps = text.norm_eps};
  const int64_t q_size = text.num_heads * shape_.head_dim;
  const int64_t kv_size = shape_.num_kv_heads * shape_.head_dim;
  std::vector<int64_t> groups{q_size, kv_size};
  if (shape_.is_sliding) groups.push_back(kv_size);
  nn::LinearOptions options{.in_features = text.hidden_size, .groups = groups};
  for (const int64_t rows : groups) options.out_features += rows;
  qkv_proj_ = register_module("qkv_proj", std::make_shared<nn::Linear>(options, dtype));
  const auto norm = [&](const char* name) {
    return register_module(name,
                           std::make_shared<nn::RmsNorm>(shape_.head_dim, options_.norm, dtype));
  };
  q_norm_ = norm("q_norm");
  k_norm_ = norm("k_norm");
  o_proj_ = register_module(
      "o_proj", std::make_shared<nn::Linear>(nn::LinearOptions{q_size, text.hidden_size}, dtype));
}

kernels::Qkv DiffusionAttention::heads(const at::Tensor& x, const PassContext& context) const {
  at::Tensor projected = qkv_proj_->forward(x);
  if (!shape_.is_sliding) {
    const int64_t kv_size = shape_.num_kv_heads * shape_.head_dim;
    projected =
        at::cat({projected, projected.narrow(-1, projected.size(-1) - kv_size, kv_size)}, -1);
  }
  kernels::QkvOptions options = options_;
  options.q_norm = q_norm_->weight();
  options.k_norm = k_norm_->weight();
  options.rope = context.ropes[shape_.is_sliding ? 1 : 0];
  options.position_ids = context.position_ids;
  kernels::Qkv qkv = kernels::split_norm_rotate(projected, options);
  qkv.v = kernels::rms_norm(qkv.v, at::ones({shape_.head_dim}, qkv.v.options()), options.norm);
  // Norms may have widened the heads' dtype.
  const at::ScalarType dtype = projected.scalar_type();
  return {qkv.q.to(dtype), qkv.k.to(dtype), qkv.v.to(dtype)};
}

at::Tensor DiffusionAttention::encode(const at::Tensor& x, const PassContext& context,
                                      KeysValues& own) const {
  const kernels::Qkv qkv = heads(x, context);
  own = {qkv.k, qkv.v};
  kernels::AttentionOptions options;
  options.scale = 1.0;
  options.window = window_;
  options.padding_mask = context.padding_mask;
  const at::Tensor out = kernels::causal_attention(qkv.q, qkv.k, qkv.v, options).out;
  return o_proj_->forward(out.flatten(2));
}

at::Tensor DiffusionAttention::decode(const at::Tensor& x, const PassContext& context,
                                      const KeysValues& text) const {
  const kernels::Qkv qkv = heads(x, context);
  const at::Tensor out =
      kernels::two_part_attention(qkv.q,
                                  {text.k.to(qkv.k.scalar_type()), text.v.to(qkv.v.scalar_type()),
                                   context.visible_text[shape_.is_sliding ? 1 : 0]},
                                  {qkv.k, qkv.v, context.visible_canvas}, {.scale = 1.0});
  return o_proj_->forward(out.flatten(2));
}

}  // namespace automodel::models::diffusion_gemma
