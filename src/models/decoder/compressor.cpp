#include "models/decoder/compressor.h"

#include <ATen/core/Tensor.h>

#include "tensor/dtype.h"
#include "tensor/shard_spec.h"

namespace automodel::models::decoder {

Compressor::Compressor(const DecoderConfig& config, const CompressorOptions& options,
                       at::ScalarType dtype)
    : head_dim_(options.head_dim) {
  const int64_t width = CompressedAttentionOptions::width(options.compression) * head_dim_;
  const int64_t rate = config.compressed_attention->rate(options.compression);
  position_bias_ = register_parameter(
      "position_bias", tensor::placeholder({rate, width}, tensor::wide_dtype(dtype)));
  const auto linear = [&](const char* name) {
    return register_module(
        name, std::make_shared<nn::Linear>(nn::LinearOptions{.in_features = config.hidden_size,
                                                             .out_features = width,
                                                             .takes_adapters = options.is_trained},
                                           dtype));
  };
  kv_proj_ = linear("kv_proj");
  gate_proj_ = linear("gate_proj");
  kv_norm_ = register_module(
      "kv_norm",
      std::make_shared<nn::RmsNorm>(head_dim_, kernels::NormOptions{config.norm_eps}, dtype));
}

at::Tensor Compressor::forward(const at::Tensor& x, const kernels::CompressedWindows& windows,
                               const kernels::RopeTable& rope) const {
  const at::Tensor pooled = kernels::pooled_windows(kv_proj_->forward(x), gate_proj_->forward(x),
                                                    position_bias_, windows, head_dim_);
  const at::Tensor keys = kv_norm_->forward(pooled).unsqueeze(2);
  return kernels::rotate_last_pairs(keys, rope, windows.position_ids).squeeze(2);
}

}  // namespace automodel::models::decoder
