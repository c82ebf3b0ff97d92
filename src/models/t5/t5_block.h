#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "models/t5/t5_attention.h"
#include "nn/unit_hook.h"

namespace automodel::models::t5 {

/// A layer of the encoder or of the decoder: a norm before each branch, whose result is dropped in
/// part and added. The decoder's has a branch of attention to the source between the other two.
class Block final : public torch::nn::Module, public nn::HookedModule {
 public:
  /// `site`, as "encoder.3", names the layer's dropout masks.
  Block(const T5Config& config, bool is_decoder, const std::string& site, at::ScalarType dtype);

  /// Runs a layer of the encoder on x [B, S, D]; `bias` is distance_bias().
  at::Tensor forward(const at::Tensor& x, const at::Tensor& bias,
                     std::shared_ptr<const decoder::ForwardContext> context) const;

  /// Runs a layer of the decoder, which attends to the encoder's result `source` [B, T, D], made in
  /// `of_source`.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& bias,
                     std::shared_ptr<const decoder::ForwardContext> context,
                     const at::Tensor& source,
                     std::shared_ptr<const decoder::ForwardContext> of_source) const;

  nn::UnitHook& unit_hook() override { return hook_; }

 private:
  at::Tensor mlp(const at::Tensor& x, const decoder::ForwardContext& context) const;

  nn::UnitHook hook_;
  double dropout_;
  std::string site_;
  kernels::Activation activation_;
  bool is_mlp_gated_;
  std::shared_ptr<nn::RmsNorm> attention_pre_norm_;
  std::shared_ptr<SelfAttention> attention_;
  std::shared_ptr<nn::RmsNorm> cross_pre_norm_;  ///< null in the encoder, as the next
  std::shared_ptr<CrossAttention> cross_attention_;
  std::shared_ptr<nn::RmsNorm> mlp_pre_norm_;
  std::shared_ptr<nn::Linear> up_proj_;  ///< "gate_up_proj" when gated
  std::shared_ptr<nn::Linear> down_proj_;
};

}  // namespace automodel::models::t5
