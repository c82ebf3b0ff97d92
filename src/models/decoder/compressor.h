#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "kernels/attention/compressed_windows.h"
#include "kernels/layers/rope.h"
#include "models/decoder/decoder_config.h"
#include "nn/layers.h"

namespace automodel::models::decoder {

struct CompressorOptions {
  Compression compression = Compression::kHeavy;
  int64_t head_dim = 0;
  bool is_trained = true;  ///< false: the keys only choose (an indexer's)
};

/// Makes a key of every window of tokens (DeepSeek V4): a sum of the tokens' values, each dim
/// weighted by a softmax of the tokens' gates and a bias for their place in the window; then
/// normed, and rotated to the position of the window's first token. Parameters in this order:
/// position_bias [rate, W] float32 (W: head_dim, or twice that where windows overlap), kv_proj,
/// gate_proj, kv_norm.
class Compressor final : public torch::nn::Module {
 public:
  Compressor(const DecoderConfig& config, const CompressorOptions& options, at::ScalarType dtype);

  /// x [B, S, D], the layer's normed input, to keys [B, W, head_dim] of the windows.
  at::Tensor forward(const at::Tensor& x, const kernels::CompressedWindows& windows,
                     const kernels::RopeTable& rope) const;

 private:
  int64_t head_dim_;
  at::Tensor position_bias_;
  std::shared_ptr<nn::Linear> kv_proj_;
  std::shared_ptr<nn::Linear> gate_proj_;
  std::shared_ptr<nn::RmsNorm> kv_norm_;
};

}  // namespace automodel::models::decoder
