#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "models/decoder/decoder_config.h"
#include "nn/layers.h"

namespace automodel::models::decoder {

/// What layers get of the tokens besides the hidden states (LayerInputOptions). Modules:
/// embed_tokens (a row of all layers' numbers a token), projection, norm (over a layer's numbers).
class LayerInputs final : public torch::nn::Module {
 public:
  /// For a config with layer_inputs.
  LayerInputs(const DecoderConfig& config, at::ScalarType dtype);

  /// Each layer's input [B, S, P] of token ids [B, S] below the table's size and the embeddings
  /// [B, S, D] that the first layer gets.
  std::vector<at::Tensor> forward(const at::Tensor& token_ids, const at::Tensor& embedded) const;

 private:
  int64_t num_layers_;
  int64_t dim_;
  double projection_scale_;
  std::shared_ptr<nn::Embedding> embed_tokens_;
  std::shared_ptr<nn::Linear> projection_;
  std::shared_ptr<nn::RmsNorm> norm_;
};

}  // namespace automodel::models::decoder
