#include "models/decoder/block.h"

#include <ATen/core/Tensor.h>

#include "core/text.h"
#include "models/decoder/compressed_attention.h"
#include "models/decoder/gated_delta_net.h"
#include "models/decoder/latent_attention.h"
#include "models/decoder/mamba2.h"
#include "models/decoder/short_conv.h"
#include "tensor/shard_spec.h"

namespace automodel::models::decoder {

std::shared_ptr<nn::Norm> make_norm(const DecoderConfig& config, at::ScalarType dtype,
                                    NormRole role) {
  const bool is_post = role == NormRole::kPost && config.post_norm_eps > 0;
  const double eps = is_post ? config.post_norm_eps : config.norm_eps;
  const bool is_plain = role == NormRole::kFinal && config.is_final_norm_rms;
  switch (is_plain ? NormKind::kRms : config.norm) {
    case NormKind::kRms:
    case NormKind::kRmsPlusOne: {
      const kernels::NormOptions options{eps, !is_plain && config.norm == NormKind::kRmsPlusOne};
      return std::make_shared<nn::RmsNorm>(config.hidden_size, options, dtype,
                                           config.has_norm_weight);
    }
    case NormKind::kLayer:
    case NormKind::kLayerPlusOne: {
      const nn::LayerNormOptions options{.eps = eps,
                                         .has_weight = config.has_norm_weight,
                                         .has_bias = config.has_norm_bias,
                                         .adds_one = config.norm == NormKind::kLayerPlusOne};
      return std::make_shared<nn::LayerNorm>(config.hidden_size, options, dtype);
    }
  }
  return nullptr;
}

Block::Block(const DecoderConfig& config, int64_t layer, at::ScalarType dtype)
    : is_parallel_(config.are_branches_parallel()),
      norms_sums_(config.has_norms_behind_sums()),
      sees_others_keys_(!config.layers[static_cast<size_t>(layer)].has_own_keys()),
      gives_keys_(config.layers[static_cast<size_t>(layer)].gives_keys),
      activation_(config.activation),
      attention_input_scale_(config.attention_input_scale),
      attention_output_scale_(config.attention_output_scale),
      residual_scale_(config.residual_scale),
      attention_dropout_(config.attention_branch_dropout.value_or(config.residual_dropout)),
      mlp_dropout_(config.residual_dropout),
      attention_site_(cat("layers.", layer, ".attention")),
      mlp_site_(cat("layers.", layer, ".mlp")) {
  const LayerOptions& options = config.layers[static_cast<size_t>(layer)];
  const bool has_post_norms = config.has_post_norms();
  if (config.has_layer_scalars) {
    layer_scalar_ = register_parameter("layer_scalar", tensor::placeholder({1}, dtype), false);
  }
  const auto norm = [&](const char* name, NormRole role = NormRole::kPre) {
    return register_module(name, make_norm(config, dtype, role));
  };
  const auto hyper_connection = [&](const char* name) {
    return register_module(name,
                           std::make_shared<nn::HyperConnection>(*config.hyper_connections, dtype));
  };
  if (options.mixer != Mixer::kNone) {
    if (config.hyper_connections) attention_hc_ = hyper_connection("attention_hc");
    if (config.has_pre_norms() && !options.is_input_unnormed) {
      attention_pre_norm_ = norm("attention_pre_norm");
    }
    add_attention(config, layer, dtype);
    if (has_post_norms) attention_post_norm_ = norm("attention_post_norm", NormRole::kPost);
  }
  if (!options.has_mlp) return;
  if (config.hyper_connections) mlp_hc_ = hyper_connection("mlp_hc");
  if (config.has_mlp_pre_norms()) mlp_pre_norm_ = norm("mlp_pre_norm");
  add_mlp(config, layer, dtype);
  if (options.has_side_experts) {
    dense_post_norm_ = norm("dense_post_norm", NormRole::kPost);
    moe_pre_norm_ = norm("moe_pre_norm");
    side_experts_ = register_module(
        "moe", std::make_shared<SideExperts>(config.experts_of(options), config.norm_eps,
                                             cat("layer ", layer), dtype));
    moe_post_norm_ = norm("moe_post_norm", NormRole::kPost);
  }
  if (has_post_norms) mlp_post_norm_ = norm("mlp_post_norm", NormRole::kPost);
  if (!config.layer_inputs) return;
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, std::make_shared<nn::Linear>(nn::LinearOptions{in, out}, dtype));
  };
  input_gate_ = linear("input_gate", config.hidden_size, config.layer_inputs->dim);
  input_proj_ = linear("input_proj", config.layer_inputs->dim, config.hidden_size);
  input_post_norm_ = norm("input_post_norm", NormRole::kPost);
}

void Block::add_attention(const DecoderConfig& config, int64_t layer, at::ScalarType dtype) {
  const auto add = [&](std::shared_ptr<AttentionLayer> made) {
    attention_ = register_module("attention", std::move(made));
  };
  switch (config.layers[static_cast<size_t>(layer)].mixer) {
    case Mixer::kGatedDelta:
      return add(std::make_shared<GatedDeltaNet>(config, dtype));
    case Mixer::kMamba2:
      return add(std::make_shared<Mamba2>(config, dtype));
    case Mixer::kShortConv:
      return add(std::make_shared<ShortConv>(config, dtype));
    case Mixer::kAttention:
      if (config.latent_attention) {
        return add(std::make_shared<LatentAttention>(config, layer, dtype));
      }
      if (config.compressed_attention) {
        return add(std::make_shared<CompressedAttention>(config, layer, dtype));
      }
      return add(std::make_shared<Attention>(config, layer, dtype));
    case Mixer::kAttentionAndMamba2:
      add(std::make_shared<Attention>(config, layer, dtype));
      mamba_ = register_module("mamba", std::make_shared<Mamba2>(config, dtype));
      return;
    case Mixer::kNone:
      return;
  }
}

void Block::add_mlp(const DecoderConfig& config, int64_t layer, at::ScalarType dtype) {
  const LayerOptions& options = config.layers[static_cast<size_t>(layer)];
  if (options.is_moe) {
    moe_ = register_module("mlp", std::make_shared<moe::MoELayer>(config.experts_of(options),
                                                                  cat("layer ", layer), dtype));
    return;
  }
  mlp_ = register_module(
      "mlp", std::make_shared<nn::Mlp>(nn::MlpOptions{.dim = config.hidden_size,
                                                      .inner_dim = config.intermediate_of(options),
                                                      .activation = config.activation,
                                                      .is_gated = config.is_mlp_gated,
                                                      .has_xielu = config.has_xielu,
                                                      .has_bias = config.has_mlp_bias,
                                                      .is_transposed = config.is_conv1d,
                                                      .gate_scale = config.mlp_gate_scale,
                                                      .output_scale = config.mlp_output_scale,
                                                      .gate_bounds = options.mlp_bounds},
                                       dtype));
}

at::Tensor Block::forward(const at::Tensor& x,
                          std::shared_ptr<const ForwardContext> context) const {
  SharedKeys none;
  return forward(x, std::move(context), {}, none);
}

at::Tensor Block::forward(const at::Tensor& x, std::shared_ptr<const ForwardContext> context,
                          const at::Tensor& layer_input, SharedKeys& shared) const {
  nn::TensorList in = {x};
  if (input_gate_) in.push_back(layer_input);
  if (sees_others_keys_) in.insert(in.end(), {shared.k, shared.v});
  // Captures the context by value: a recomputing behaviour calls the body again much later.
  const nn::TensorList out = hook_(in, [this, context](const nn::TensorList& given) {
    SharedKeys keys;
    if (sees_others_keys_) keys = {given[given.size() - 2], given[given.size() - 1]};
    at::Tensor result = run(given[0], *context, keys);
    if (input_gate_) result = with_layer_input(result, given[1]);
    if (layer_scalar_.defined()) result = result * layer_scalar_;
    return gives_keys_ ? nn::TensorList{result, keys.k, keys.v} : nn::TensorList{result};
  });
  if (gives_keys_) shared = {out[1], out[2]};
  return out[0];
}

/// x [B, S, D] and what the layer's input [B, S, P] makes of it.
at::Tensor Block::with_layer_input(const at::Tensor& x, const at::Tensor& layer_input) const {
  const at::Tensor gate = kernels::activate(input_gate_->forward(x), activation_);
  return x + input_post_norm_->forward(input_proj_->forward(gate * layer_input));
}

/// x times a number, without work for 1.
static at::Tensor scaled(const at::Tensor& x, double scale) {
  return scale == 1.0 ? x : x * scale;
}

/// Applies what is between a branch's last projection and the residual sum.
at::Tensor Block::finish_branch(at::Tensor branch, const nn::Norm* post_norm,
                                const ForwardContext& context, const std::string& site,
                                double p) const {
  if (post_norm != nullptr) branch = post_norm->forward(branch);
  branch = dropout(branch, context, site, p);
  return scaled(branch, residual_scale_);
}

/// What mixes tokens, of a branch's input [B, S, D].
at::Tensor Block::mix(const at::Tensor& input, const ForwardContext& context,
                      SharedKeys& shared) const {
  if (sees_others_keys_ || gives_keys_) return attention_->forward_shared(input, context, shared);
  if (!mamba_) return attention_->forward(input, context);
  const at::Tensor attended = scaled(
      attention_->forward(scaled(input, attention_input_scale_), context), attention_output_scale_);
  return mamba_->forward(input, context) + attended;
}

at::Tensor Block::run(const at::Tensor& x, const ForwardContext& context) const {
  SharedKeys none;
  return run(x, context, none);
}

at::Tensor Block::run(const at::Tensor& x, const ForwardContext& context,
                      SharedKeys& shared) const {
  context.key_adapters();
  if (attention_hc_) return run_streams(x, context);
  if (norms_sums_) return run_normed_sums(x, context);
  if (!attention_) return add_mlp_branch(x, mlp_pre_norm_ ? mlp_pre_norm_->forward(x) : x, context);
  const at::Tensor input = attention_pre_norm_ ? attention_pre_norm_->forward(x) : x;
  at::Tensor branch = mix(input, context, shared);
  branch = finish_branch(std::move(branch), attention_post_norm_.get(), context, attention_site_,
                         attention_dropout_);
  if (!mlp_ && !moe_) return x + branch;
  if (is_parallel_) {
    const at::Tensor mlp_input = mlp_pre_norm_ ? mlp_pre_norm_->forward(x) : input;
    return add_mlp_branch(x + branch, mlp_input, context);
  }
  if (!mlp_pre_norm_) {
    const at::Tensor residual = x + branch;
    return add_mlp_branch(residual, residual, context);
  }
  const auto [residual, mlp_input] = mlp_pre_norm_->add(branch, x);
  return add_mlp_branch(residual, mlp_input, context);
}

/// Both branches between streams [B, S, N D].
at::Tensor Block::run_streams(const at::Tensor& streams, const ForwardContext& context) const {
  const nn::CollapsedStreams first = attention_hc_->collapse(streams);
  SharedKeys none;
  const at::Tensor attended = mix(attention_pre_norm_->forward(first.input), context, none);
  const at::Tensor between = attention_hc_->expand(attended, streams, first);
  const nn::CollapsedStreams second = mlp_hc_->collapse(between);
  const at::Tensor branch = mlp_or_experts(mlp_pre_norm_->forward(second.input), context);
  return mlp_hc_->expand(branch, between, second);
}

/// Both branches, with a norm behind each one's sum with the residual.
at::Tensor Block::run_normed_sums(const at::Tensor& x, const ForwardContext& context) const {
  SharedKeys none;
  const at::Tensor attended =
      finish_branch(mix(x, context, none), nullptr, context, attention_site_, attention_dropout_);
  const at::Tensor between = attention_post_norm_->add(attended, x).second;
  const at::Tensor branch =
      finish_branch(mlp_or_experts(between, context), nullptr, context, mlp_site_, mlp_dropout_);
  return mlp_post_norm_->add(branch, between).second;
}

at::Tensor Block::mlp_or_experts(const at::Tensor& input, const ForwardContext& context) const {
  return moe_ ? moe_->forward(input, context.no_token, context.token_ids) : mlp_->forward(input);
}

at::Tensor Block::add_mlp_branch(const at::Tensor& residual, const at::Tensor& input,
                                 const ForwardContext& context) const {
  at::Tensor branch = mlp_or_experts(input, context);
  if (side_experts_) {
    const at::Tensor chosen =
        side_experts_->forward(moe_pre_norm_->forward(residual), residual, context.no_token);
    branch = dense_post_norm_->forward(branch) + moe_post_norm_->forward(chosen);
  }
  return residual +
         finish_branch(std::move(branch), mlp_post_norm_.get(), context, mlp_site_, mlp_dropout_);
}

}  // namespace automodel::models::decoder
