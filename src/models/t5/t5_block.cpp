#include "models/t5/t5_block.h"

#include <ATen/ATen.h>

#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/layers/activation.h"
#include "kernels/layers/norm.h"

namespace automodel::models::t5 {

Block::Block(const T5Config& config, bool is_decoder, const std::string& site, at::ScalarType dtype)
    : dropout_(config.dropout),
      site_(site),
      activation_(config.activation),
      is_mlp_gated_(config.is_mlp_gated) {
  const auto norm = [&](const char* name) {
    return register_module(
        name, std::make_shared<nn::RmsNorm>(config.hidden_size,
                                            kernels::NormOptions{.eps = config.norm_eps}, dtype));
  };
  attention_pre_norm_ = norm("attention_pre_norm");
  attention_ = register_module(
      "attention", std::make_shared<SelfAttention>(config, is_decoder,
                                                   cat(site, ".attention.probabilities"), dtype));
  if (is_decoder) {
    cross_pre_norm_ = norm("cross_pre_norm");
    cross_attention_ = register_module(
        "cross_attention",
        std::make_shared<CrossAttention>(config, cat(site, ".cross.probabilities"), dtype));
  }
  mlp_pre_norm_ = norm("mlp_pre_norm");
  const int64_t num_parts = is_mlp_gated_ ? 2 : 1;
  nn::LinearOptions up{.in_features = config.hidden_size,
                       .out_features = num_parts * config.intermediate_size};
  if (is_mlp_gated_) up.groups = {config.intermediate_size, config.intermediate_size};
  up_proj_ = register_module(is_mlp_gated_ ? "gate_up_proj" : "up_proj",
                             std::make_shared<nn::Linear>(up, dtype));
  down_proj_ = register_module(
      "down_proj", std::make_shared<nn::Linear>(
                       nn::LinearOptions{config.intermediate_size, config.hidden_size}, dtype));
}

at::Tensor Block::mlp(const at::Tensor& x, const decoder::ForwardContext& context) const {
  const at::Tensor up = up_proj_->forward(x);
  const at::Tensor inner = is_mlp_gated_ ? kernels::gated_activation(up, activation_)
                                         : kernels::activate(up, activation_);
  return down_proj_->forward(decoder::dropout(inner, context, cat(site_, ".mlp.inner"), dropout_));
}

at::Tensor Block::forward(const at::Tensor& x, const at::Tensor& bias,
                          std::shared_ptr<const decoder::ForwardContext> context) const {
  return forward(x, bias, std::move(context), {}, nullptr);
}

at::Tensor Block::forward(const at::Tensor& x, const at::Tensor& bias,
                          std::shared_ptr<const decoder::ForwardContext> context,
                          const at::Tensor& source,
                          std::shared_ptr<const decoder::ForwardContext> of_source) const {
  AM_CHECK(source.defined() == (cross_attention_ != nullptr));
  nn::TensorList in = {x, bias};
  if (source.defined()) in.push_back(source);
  // Captures contexts by value: a recomputing behaviour calls the body again much later.
  return hook_(in, [this, context, of_source](const nn::TensorList& given) {
    context->key_adapters();
    const auto dropped = [&](const at::Tensor& branch, const char* name) {
      return decoder::dropout(branch, *context, cat(site_, name), dropout_);
    };
    at::Tensor sum = given[0];
    at::Tensor normed = attention_pre_norm_->forward(sum);
    at::Tensor branch = dropped(attention_->forward(normed, given[1], *context), ".attention");
    if (cross_attention_) {
      std::tie(sum, normed) = cross_pre_norm_->add(branch, sum);
      branch = dropped(cross_attention_->forward(normed, *context, given[2], *of_source), ".cross");
    }
    std::tie(sum, normed) = mlp_pre_norm_->add(branch, sum);
    return nn::TensorList{sum + dropped(mlp(normed, *context), ".mlp")};
  })[0];
}

}  // namespace automodel::models::t5
