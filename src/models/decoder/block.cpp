#include "models/decoder/block.h"

#include <ATen/core/Tensor.h>

#include "core/text.h"
#include "models/decoder/latent_attention.h"

namespace automodel::models::decoder {

std::shared_ptr<nn::Norm> make_norm(const DecoderConfig& config, at::ScalarType dtype) {
  switch (config.norm) {
    case NormKind::kRms:
    case NormKind::kRmsPlusOne: {
      const kernels::NormOptions options{config.norm_eps, config.norm == NormKind::kRmsPlusOne};
      return std::make_shared<nn::RmsNorm>(config.hidden_size, options, dtype);
    }
    case NormKind::kLayer:
      return std::make_shared<nn::LayerNorm>(config.hidden_size, config.norm_eps, dtype);
  }
  return nullptr;
}

Block::Block(const DecoderConfig& config, int64_t layer, at::ScalarType dtype)
    : residual_scale_(config.residual_scale),
      residual_dropout_(config.residual_dropout),
      attention_site_(cat("layers.", layer, ".attention")),
      mlp_site_(cat("layers.", layer, ".mlp")) {
  const bool has_pre_norms = config.norm_placement != NormPlacement::kPost;
  const bool has_post_norms = config.norm_placement != NormPlacement::kPre;
  const auto norm = [&](const char* name) {
    return register_module(name, make_norm(config, dtype));
  };
  if (has_pre_norms) attention_pre_norm_ = norm("attention_pre_norm");
  add_attention(config, layer, dtype);
  if (has_post_norms) attention_post_norm_ = norm("attention_post_norm");
  if (has_pre_norms) mlp_pre_norm_ = norm("mlp_pre_norm");
  add_mlp(config, layer, dtype);
  if (has_post_norms) mlp_post_norm_ = norm("mlp_post_norm");
}

void Block::add_attention(const DecoderConfig& config, int64_t layer, at::ScalarType dtype) {
  if (config.latent_attention) {
    attention_ =
        register_module("attention", std::make_shared<LatentAttention>(config, layer, dtype));
  } else {
    attention_ = register_module("attention", std::make_shared<Attention>(config, layer, dtype));
  }
}

void Block::add_mlp(const DecoderConfig& config, int64_t layer, at::ScalarType dtype) {
  if (config.layers[static_cast<size_t>(layer)].is_moe) {
    moe_ = register_module(
        "mlp", std::make_shared<moe::MoELayer>(*config.moe, cat("layer ", layer), dtype));
    return;
  }
  mlp_ = register_module(
      "mlp", std::make_shared<nn::Mlp>(nn::MlpOptions{.dim = config.hidden_size,
                                                      .inner_dim = config.intermediate_size,
                                                      .activation = config.activation,
                                                      .is_gated = config.is_mlp_gated,
                                                      .has_bias = config.has_mlp_bias,
                                                      .is_transposed = config.is_conv1d},
                                       dtype));
}

at::Tensor Block::forward(const at::Tensor& x,
                          std::shared_ptr<const ForwardContext> context) const {
  // The body holds the context by value: a recomputing behaviour calls it again much later.
  return hook_({x}, [this, context](const nn::TensorList& in) {
    return nn::TensorList{run(in[0], *context)};
  })[0];
}

/// What stands between a branch's last projection and the residual sum.
at::Tensor Block::finish_branch(at::Tensor branch, const nn::Norm* post_norm,
                                const ForwardContext& context, const std::string& site) const {
  if (post_norm != nullptr) branch = post_norm->forward(branch);
  branch = dropout(branch, context, site, residual_dropout_);
  return residual_scale_ == 1.0 ? branch : branch * residual_scale_;
}

at::Tensor Block::run(const at::Tensor& x, const ForwardContext& context) const {
  const DropoutContext& dropout = context.dropout;
  *context.adapter_dropout = {dropout.seed, dropout.step, dropout.micro_batch};
  at::Tensor branch =
      attention_->forward(attention_pre_norm_ ? attention_pre_norm_->forward(x) : x, context);
  branch = finish_branch(std::move(branch), attention_post_norm_.get(), context, attention_site_);
  at::Tensor residual;
  at::Tensor mlp_input;
  if (mlp_pre_norm_) {
    std::tie(residual, mlp_input) = mlp_pre_norm_->add(branch, x);
  } else {
    residual = x + branch;
    mlp_input = residual;
  }
  branch = moe_ ? moe_->forward(mlp_input, context.no_token) : mlp_->forward(mlp_input);
  return residual + finish_branch(std::move(branch), mlp_post_norm_.get(), context, mlp_site_);
}

}  // namespace automodel::models::decoder
