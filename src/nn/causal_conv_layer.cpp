#include "nn/causal_conv_layer.h"

#include "tensor/shard_spec.h"

namespace automodel::nn {

CausalConv::CausalConv(const CausalConvOptions& options, at::ScalarType dtype) {
  weight_ = register_parameter(
      "weight", tensor::placeholder({options.num_channels, 1, options.num_taps}, dtype));
  if (options.has_bias) {
    bias_ = register_parameter("bias", tensor::placeholder({options.num_channels}, dtype));
  }
}

}  // namespace automodel::nn
