#include "models/diffusion_gemma/layer.h"

#include <ATen/ATen.h>

#include "core/text.h"
#include "kernels/layers/norm.h"
#include "tensor/shard_spec.h"

namespace automodel::models::diffusion_gemma {

namespace {

nn::MlpOptions mlp_options(const decoder::DecoderConfig& text) {
  return {
      .dim = text.hidden_size, .inner_dim = text.intermediate_size, .activation = text.activation};
}

}  // namespace

DiffusionLayer::DiffusionLayer(const DiffusionGemmaConfig& config, size_t layer,
                               at::ScalarType dtype) {
  const decoder::DecoderConfig& text = config.text;
  const auto scalar = [&](const char* name) {
    return register_parameter(name, tensor::placeholder({1}, dtype), false);
  };
  const auto norm = [&](const char* name) {
    return register_module(
        name, std::make_shared<nn::RmsNorm>(text.hidden_size,
                                            kernels::NormOptions{.eps = text.norm_eps}, dtype));
  };
  layer_scalar_ = scalar("layer_scalar");
  encoder_layer_scalar_ = scalar("encoder_layer_scalar");
  attention_pre_norm_ = norm("attention_pre_norm");
  attention_ =
      register_module("attention", std::make_shared<DiffusionAttention>(config, layer, dtype));
  attention_post_norm_ = norm("attention_post_norm");
  mlp_pre_norm_ = norm("mlp_pre_norm");
  mlp_ = register_module("mlp", std::make_shared<nn::Mlp>(mlp_options(text), dtype));
  mlp_post_norm_ = norm("mlp_post_norm");
  moe_pre_norm_ = norm("moe_pre_norm");
  moe_ = register_module("moe", std::make_shared<decoder::SideExperts>(
                                    *text.moe, text.norm_eps, cat("layer ", layer), dtype));
  if (config.is_router_frozen) moe_->freeze_router();
  moe_post_norm_ = norm("moe_post_norm");
  post_norm_ = norm("post_norm");
}

at::Tensor DiffusionLayer::finish(const at::Tensor& x, const at::Tensor& attended,
                                  const PassContext& context, const at::Tensor& scalar) const {
  const auto [residual, mlp_input] = mlp_pre_norm_->add(attention_post_norm_->forward(attended), x);
  const at::Tensor dense = mlp_post_norm_->forward(mlp_->forward(mlp_input));
  const at::Tensor experts = moe_post_norm_->forward(
      moe_->forward(moe_pre_norm_->forward(residual), residual, context.padding_mask));
  return (residual + post_norm_->forward(dense + experts)) * scalar;
}

at::Tensor DiffusionLayer::encode(const at::Tensor& x, std::shared_ptr<const PassContext> context,
                                  KeysValues& own) const {
  // Captures contexts by value: a recomputing behaviour calls the bodies again much later.
  const nn::TensorList out = hook_({x}, [this, context](const nn::TensorList& in) {
    context->key_adapters();
    KeysValues kv;
    const at::Tensor attended =
        attention_->encode(attention_pre_norm_->forward(in[0]), *context, kv);
    return nn::TensorList{finish(in[0], attended, *context, encoder_layer_scalar_), kv.k, kv.v};
  });
  own = {out[1], out[2]};
  return out[0];
}

at::Tensor DiffusionLayer::decode(const at::Tensor& x, std::shared_ptr<const PassContext> context,
                                  const KeysValues& text) const {
  return hook_({x, text.k, text.v}, [this, context](const nn::TensorList& in) {
    context->key_adapters();
    const at::Tensor attended =
        attention_->decode(attention_pre_norm_->forward(in[0]), *context, {in[1], in[2]});
    return nn::TensorList{finish(in[0], attended, *context, layer_scalar_)};
  })[0];
}

SelfConditioning::SelfConditioning(const DiffusionGemmaConfig& config, at::ScalarType dtype)
    : norm_{.eps = config.text.norm_eps} {
  pre_norm_ = register_module("pre_norm",
                              std::make_shared<nn::RmsNorm>(config.text.hidden_size, norm_, dtype));
  mlp_ = register_module("mlp", std::make_shared<nn::Mlp>(mlp_options(config.text), dtype));
}

at::Tensor SelfConditioning::forward(const at::Tensor& embedded, const at::Tensor& expected) const {
  // Without `expected` the norm and MLP of it would be zero.
  const at::Tensor sum =
      expected.defined() ? embedded + mlp_->forward(pre_norm_->forward(expected)) : embedded;
  return kernels::rms_norm(sum, at::ones({sum.size(-1)}, sum.options()), norm_);
}

}  // namespace automodel::models::diffusion_gemma
