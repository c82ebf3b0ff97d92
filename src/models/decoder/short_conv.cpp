#include "models/decoder/short_conv.h"

#include <ATen/ATen.h>

namespace automodel::models::decoder {

ShortConv::ShortConv(const DecoderConfig& config, at::ScalarType dtype) {
  const ShortConvOptions& options = *config.short_conv;
  const int64_t dim = config.hidden_size;
  const auto linear = [&](const char* name, int64_t out) {
    return register_module(
        name, std::make_shared<nn::Linear>(
                  nn::LinearOptions{
                      .in_features = dim, .out_features = out, .has_bias = options.has_bias},
                  dtype));
  };
  in_proj_ = linear("in_proj", 3 * dim);
  conv_ = register_module(
      "conv1d", std::make_shared<nn::CausalConv>(
                    nn::CausalConvOptions{dim, options.num_taps, options.has_bias}, dtype));
  out_proj_ = linear("out_proj", dim);
}

at::Tensor ShortConv::forward(const at::Tensor& x, const ForwardContext& context) const {
  const auto parts = in_proj_->forward(without_padding(x, context)).chunk(3, -1);
  const at::Tensor convolved =
      conv_->forward((parts[0] * parts[2]).contiguous(), context.document_runs);
  return out_proj_->forward(parts[1] * convolved);
}

}  // namespace automodel::models::decoder
