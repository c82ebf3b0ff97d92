#pragma once

#include <torch/nn/module.h>

#include <array>
#include <memory>

#include "kernels/attention/attention.h"
#include "kernels/layers/rope.h"
#include "models/diffusion_gemma/config.h"
#include "nn/layers.h"

// Legend: B sequences, S tokens of text, R tokens of canvas, N heads, K key-value heads, H head
// size.

namespace automodel::models::diffusion_gemma {

/// A layer's keys and values of one pass's tokens, [B, S, K, H]; k is rotated.
struct KeysValues {
  at::Tensor k;
  at::Tensor v;
};

/// What the layers of one pass share. In pairs the first is for full layers, the second for sliding
/// ones.
struct PassContext {
  std::array<kernels::RopeTable, 2> ropes;
  at::Tensor position_ids;                 ///< of the pass's tokens; undefined: 0, 1, ...
  at::Tensor padding_mask;                 ///< of the pass's tokens, bool, or undefined
  std::array<at::Tensor, 2> visible_text;  ///< [B, R, 2]
  at::Tensor visible_canvas;               ///< [B, R, 2]
  nn::DropoutKey dropout;                  ///< of this pass
  /// The dropout key of the model's adapters, which get no context; what runs them sets it before.
  std::shared_ptr<nn::DropoutKey> adapter_dropout;

  /// Sets the adapters' dropout key to this pass's.
  void key_adapters() const { *adapter_dropout = dropout; }
};

/// The attention of both passes. Parameters in this order: qkv_proj (rows: queries, keys and in
/// sliding layers values), q_norm, k_norm, o_proj. Values are normed without a weight; scores are
/// not scaled.
class DiffusionAttention final : public torch::nn::Module {
 public:
  DiffusionAttention(const DiffusionGemmaConfig& config, size_t layer, at::ScalarType dtype);

  /// Causal; x [B, S, D] to [B, S, D]. Sets `own` to this pass's keys and values.
  at::Tensor encode(const at::Tensor& x, const PassContext& context, KeysValues& own) const;
  /// x [B, R, D] to [B, R, D], attending in both directions to the text's and the canvas's keys.
  at::Tensor decode(const at::Tensor& x, const PassContext& context, const KeysValues& text) const;

 private:
  kernels::Qkv heads(const at::Tensor& x, const PassContext& context) const;

  decoder::Gemma4Layer shape_;
  int64_t window_;
  kernels::QkvOptions options_;
  std::shared_ptr<nn::Linear> qkv_proj_;
  std::shared_ptr<nn::RmsNorm> q_norm_;
  std::shared_ptr<nn::RmsNorm> k_norm_;
  std::shared_ptr<nn::Linear> o_proj_;
};

}  // namespace automodel::models::diffusion_gemma
