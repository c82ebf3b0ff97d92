#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "models/decoder/side_experts.h"
#include "models/diffusion_gemma/canvas_attention.h"
#include "nn/mlp.h"
#include "nn/repeated_block.h"
#include "nn/unit_hook.h"

namespace automodel::models::diffusion_gemma {

/// A layer of both passes: attention, then an MLP and experts side by side on the same residual,
/// norms around each, and finally a scalar: layer_scalar when denoising, encoder_layer_scalar when
/// reading text; neither is trained.
class DiffusionLayer final : public torch::nn::Module,
                             public nn::HookedModule,
                             public nn::RepeatedBlock {
 public:
  DiffusionLayer(const DiffusionGemmaConfig& config, size_t layer, at::ScalarType dtype);

  /// Reads text x [B, S, D] and sets `own` to its keys and values. Goes through the unit's hook, as
  /// decode() does. The graph keeps the context.
  at::Tensor encode(const at::Tensor& x, std::shared_ptr<const PassContext> context,
                    KeysValues& own) const;
  /// Denoises a canvas x [B, R, D] that follows the text.
  at::Tensor decode(const at::Tensor& x, std::shared_ptr<const PassContext> context,
                    const KeysValues& text) const;

  nn::UnitHook& unit_hook() override { return hook_; }

 private:
  at::Tensor finish(const at::Tensor& x, const at::Tensor& attended, const PassContext& context,
                    const at::Tensor& scalar) const;

  nn::UnitHook hook_;
  at::Tensor layer_scalar_;
  at::Tensor encoder_layer_scalar_;
  std::shared_ptr<nn::RmsNorm> attention_pre_norm_;
  std::shared_ptr<DiffusionAttention> attention_;
  std::shared_ptr<nn::RmsNorm> attention_post_norm_;
  std::shared_ptr<nn::RmsNorm> mlp_pre_norm_;
  std::shared_ptr<nn::Mlp> mlp_;
  std::shared_ptr<nn::RmsNorm> mlp_post_norm_;
  std::shared_ptr<nn::RmsNorm> moe_pre_norm_;
  std::shared_ptr<decoder::SideExperts> moe_;
  std::shared_ptr<nn::RmsNorm> moe_post_norm_;
  std::shared_ptr<nn::RmsNorm> post_norm_;
};

/// Adds what an earlier pass expected to the embedded canvas. Modules: pre_norm, mlp.
class SelfConditioning final : public torch::nn::Module {
 public:
  SelfConditioning(const DiffusionGemmaConfig& config, at::ScalarType dtype);

  /// embedded and expected [B, R, D]; expected may be undefined.
  at::Tensor forward(const at::Tensor& embedded, const at::Tensor& expected) const;

 private:
  kernels::NormOptions norm_;
  std::shared_ptr<nn::RmsNorm> pre_norm_;
  std::shared_ptr<nn::Mlp> mlp_;
};

}  // namespace automodel::models::diffusion_gemma
