#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "models/decoder/block.h"
#include "nn/layers.h"
#include "nn/repeated_block.h"

namespace automodel::models::decoder {

/// A layer that predicts further tokens: a block, which in a depth's first layer begins by joining
/// the hidden states with the embedding of the token ahead, and in its last ends with a norm.
/// Modules behind the block's: embedding_norm, hidden_norm, fusion_proj (of the first), depth_norm
/// (of the last).
class NextTokenLayer final : public Block, public nn::RepeatedBlock {
 public:
  /// `layer` counts in a configuration that has these layers behind the model's (NextTokenModule).
  NextTokenLayer(const DecoderConfig& config, int64_t layer, bool is_first, bool is_last,
                 at::ScalarType dtype);

  /// x and the embedding of the token ahead (undefined but for a depth's first layer), both
  /// [B, S, D], to [B, S, D], through the unit's hook.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& embedded,
                     std::shared_ptr<const ForwardContext> context) const;

 private:
  at::Tensor run_all(const nn::TensorList& inputs, const ForwardContext& context) const;

  std::shared_ptr<nn::Norm> embedding_norm_;  // null but for a first layer, as the next two
  std::shared_ptr<nn::Norm> hidden_norm_;
  std::shared_ptr<nn::Linear> fusion_proj_;
  std::shared_ptr<nn::Norm> depth_norm_;  // null but for a last layer
};

/// The layers of all depths (DecoderConfig::next_tokens), as modules layers.N.
class NextTokenModule final : public torch::nn::Module {
 public:
  NextTokenModule(const DecoderConfig& config, at::ScalarType dtype);

  /// The hidden states of every depth, [B, S, D] each, of the model's last ones and the embeddings
  /// of the tokens 1, 2, ... positions ahead, one a depth.
  std::vector<at::Tensor> forward(const at::Tensor& hidden, const std::vector<at::Tensor>& ahead,
                                  const std::shared_ptr<const ForwardContext>& context) const;

  const std::vector<std::shared_ptr<NextTokenLayer>>& layers() const { return layers_; }

 private:
  NextTokenOptions options_;
  std::vector<std::shared_ptr<NextTokenLayer>> layers_;
};

/// The labels of a depth (0, 1, ...), [B, S]: those that are `depth` + 1 positions ahead, and
/// `ignore_index` where the sequence or the position's document has ended by then.
at::Tensor labels_ahead(const tensor::Batch& batch, int64_t depth, int64_t ignore_index);

}  // namespace automodel::models::decoder
