#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "models/decoder/attention_layer.h"
#include "models/decoder/side_experts.h"
#include "moe/moe_layer.h"
#include "nn/hyper_connection.h"
#include "nn/mlp.h"
#include "nn/unit_hook.h"

namespace automodel::models::decoder {

/// One layer: attention (or another mixer of tokens, or a Mamba-2 layer beside it) and an MLP (or a
/// mixture of experts), each with its norms and residual sum, or one of the two alone. Modules:
/// attention_pre_norm, attention, mamba, attention_post_norm, mlp_pre_norm, mlp, mlp_post_norm;
/// which norms exist depends on the placement. With hyper-connections, attention_hc and mlp_hc
/// before each branch's norm are in the place of its residual sum, and x is [B, S, N D], N streams.
/// A parameter layer_scalar, before all of them, multiplies the result. Experts beside the MLP read
/// and choose by its residual: dense_post_norm is behind the MLP alone, moe_pre_norm and
/// moe_post_norm are around `moe`, and mlp_post_norm is behind the sum of both. With inputs of each
/// layer: input_gate, input_proj and input_post_norm behind all of these. With norms behind sums
/// attention_post_norm and mlp_post_norm are of the sums.
class Block : public torch::nn::Module, public nn::HookedModule {
 public:
  Block(const DecoderConfig& config, int64_t layer, at::ScalarType dtype);

  /// x [B, S, D] to [B, S, D], through the unit's hook. The graph keeps the context.
  at::Tensor forward(const at::Tensor& x, std::shared_ptr<const ForwardContext> context) const;
  /// forward() of a layer that has an input of its own, layer_input [B, S, P] (undefined without),
  /// sees another layer's keys, which are `shared`, or gives others its own, to which it sets
  /// `shared`.
  at::Tensor forward(const at::Tensor& x, std::shared_ptr<const ForwardContext> context,
                     const at::Tensor& layer_input, SharedKeys& shared) const;

  nn::UnitHook& unit_hook() override { return hook_; }
  /// Null in a layer that is only an MLP.
  AttentionLayer* attention() { return attention_.get(); }

 protected:
  /// The forward without the hook.
  at::Tensor run(const at::Tensor& x, const ForwardContext& context) const;
  at::Tensor run(const at::Tensor& x, const ForwardContext& context, SharedKeys& shared) const;
  const nn::UnitHook& hook() const { return hook_; }

 private:
  at::Tensor run_streams(const at::Tensor& streams, const ForwardContext& context) const;
  at::Tensor run_normed_sums(const at::Tensor& x, const ForwardContext& context) const;
  at::Tensor mlp_or_experts(const at::Tensor& input, const ForwardContext& context) const;
  at::Tensor mix(const at::Tensor& input, const ForwardContext& context, SharedKeys& shared) const;
  at::Tensor with_layer_input(const at::Tensor& x, const at::Tensor& layer_input) const;
  at::Tensor add_mlp_branch(const at::Tensor& residual, const at::Tensor& input,
                            const ForwardContext& context) const;
  void add_attention(const DecoderConfig& config, int64_t layer, at::ScalarType dtype);
  void add_mlp(const DecoderConfig& config, int64_t layer, at::ScalarType dtype);
  at::Tensor finish_branch(at::Tensor branch, const nn::Norm* post_norm,
                           const ForwardContext& context, const std::string& site, double p) const;

  bool is_parallel_;
  bool norms_sums_;
  bool sees_others_keys_;
  bool gives_keys_;
  kernels::Activation activation_;
  double attention_input_scale_;
  double attention_output_scale_;
  double residual_scale_;
  double attention_dropout_;
  double mlp_dropout_;
  std::string attention_site_;
  std::string mlp_site_;
  nn::UnitHook hook_;
  at::Tensor layer_scalar_;                            // undefined without
  std::shared_ptr<nn::HyperConnection> attention_hc_;  // null without streams, as is mlp_hc_
  std::shared_ptr<nn::HyperConnection> mlp_hc_;
  std::shared_ptr<nn::Norm> attention_pre_norm_;
  std::shared_ptr<AttentionLayer> attention_;
  std::shared_ptr<AttentionLayer> mamba_;  // beside attention
  std::shared_ptr<nn::Norm> attention_post_norm_;
  std::shared_ptr<nn::Norm> mlp_pre_norm_;
  std::shared_ptr<nn::Mlp> mlp_;               // registered as "mlp", as is moe_
  std::shared_ptr<moe::MoELayer> moe_;         // one of the two is null
  std::shared_ptr<nn::Norm> dense_post_norm_;  // null without experts beside the MLP, as these are:
  std::shared_ptr<nn::Norm> moe_pre_norm_;
  std::shared_ptr<SideExperts> side_experts_;  // registered as "moe"
  std::shared_ptr<nn::Norm> moe_post_norm_;
  std::shared_ptr<nn::Norm> mlp_post_norm_;
  std::shared_ptr<nn::Linear> input_gate_;  // null without inputs of layers, as these are:
  std::shared_ptr<nn::Linear> input_proj_;
  std::shared_ptr<nn::Norm> input_post_norm_;
};

/// What a norm over `hidden_size` dims is for.
enum class NormRole {
  kPre,
  kPost,   ///< behind a branch
  kFinal,  ///< behind all layers
};

/// The config's kind of norm over `hidden_size` dims.
std::shared_ptr<nn::Norm> make_norm(const DecoderConfig& config, at::ScalarType dtype,
                                    NormRole role = NormRole::kPre);

}  // namespace automodel::models::decoder
