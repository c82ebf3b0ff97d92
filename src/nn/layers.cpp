#include "nn/layers.h"

#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "tensor/shard_spec.h"

namespace automodel::nn {

using tensor::placeholder;

Linear::Linear(const LinearOptions& options, at::ScalarType dtype) : options_(options) {
  const auto [in, out] = std::pair(options.in_features, options.out_features);
  weight_ = register_parameter("weight", options.is_transposed ? placeholder({in, out}, dtype)
                                                               : placeholder({out, in}, dtype));
  if (options.has_bias) bias_ = register_parameter("bias", placeholder({out}, dtype));
}

at::Tensor Linear::forward(const at::Tensor& x) const {
  return kernels::linear(x, options_.is_transposed ? weight_.t() : weight_, bias_);
}

Embedding::Embedding(const EmbeddingOptions& options, at::ScalarType dtype) : options_(options) {
  weight_ = register_parameter("weight", placeholder({options.num_rows, options.dim}, dtype));
}

at::Tensor Embedding::forward(const at::Tensor& ids) const {
  return kernels::embedding(weight_, ids, options_.padding_idx);
}

RmsNorm::RmsNorm(int64_t dim, const kernels::NormOptions& options, at::ScalarType dtype)
    : options_(options) {
  weight_ = register_parameter("weight", placeholder({dim}, dtype));
}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  return kernels::rms_norm(x, weight_, options_);
}

std::pair<at::Tensor, at::Tensor> RmsNorm::add(const at::Tensor& x,
                                               const at::Tensor& residual) const {
  return kernels::add_rms_norm(x, residual, weight_, options_);
}

LayerNorm::LayerNorm(int64_t dim, double eps, at::ScalarType dtype) : eps_(eps) {
  weight_ = register_parameter("weight", placeholder({dim}, dtype));
  bias_ = register_parameter("bias", placeholder({dim}, dtype));
}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  return kernels::layer_norm(x, weight_, bias_, eps_);
}

std::pair<at::Tensor, at::Tensor> LayerNorm::add(const at::Tensor& x,
                                                 const at::Tensor& residual) const {
  at::Tensor sum = x + residual;
  at::Tensor normed = kernels::layer_norm(sum, weight_, bias_, eps_);
  return {std::move(sum), std::move(normed)};
}

}  // namespace automodel::nn
