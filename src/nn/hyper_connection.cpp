#include "nn/hyper_connection.h"

#include <ATen/ATen.h>

#include "kernels/base/pointwise.h"
#include "kernels/layers/norm.h"
#include "tensor/dtype.h"
#include "tensor/shard_spec.h"

// B sequences of S tokens, N streams of D dims.

namespace automodel::nn {

using tensor::placeholder;

namespace {

/// The rows' products with the token's normed streams [B, S, N D], in the rows' dtype or wider.
at::Tensor projected(const at::Tensor& streams, const at::Tensor& rows, double eps) {
  const at::ScalarType wide = tensor::wide_dtype(streams.scalar_type());
  return at::linear(kernels::unweighted_rms_norm(streams.to(wide), eps), rows.to(wide));
}

/// The sum over streams [B, S, N D] with weights [B, S, N], in the streams' dtype.
at::Tensor weighted_sum(const at::Tensor& streams, const at::Tensor& weights) {
  const int64_t num_streams = weights.size(-1);
  return (weights.unsqueeze(-1) * streams.unflatten(-1, {num_streams, -1}))
      .sum(-2)
      .to(streams.scalar_type());
}

}  // namespace

at::Tensor doubly_stochastic(const at::Tensor& matrices, int64_t iterations, double eps) {
  const auto divided = [eps](const at::Tensor& x, int64_t dim) {
    return x / (x.sum(dim, true) + eps);
  };
  at::Tensor out = divided(matrices, -2);
  for (int64_t i = 1; i < iterations; ++i) out = divided(divided(out, -1), -2);
  return out;
}

HyperConnection::HyperConnection(const HyperConnectionOptions& options, at::ScalarType dtype)
    : options_(options) {
  const at::ScalarType wide = tensor::wide_dtype(dtype);
  const int64_t count = options.num_weights();
  fn_ = register_parameter("fn", placeholder({count, options.stream_dims()}, wide));
  base_ = register_parameter("base", placeholder({count}, wide));
  scale_ = register_parameter("scale", placeholder({3}, wide));
}

CollapsedStreams HyperConnection::collapse(const at::Tensor& streams) const {
  const int64_t n = options_.num_streams;
  const at::Tensor weights = projected(streams, fn_, options_.norm_eps);
  const at::Tensor base = base_.to(weights.scalar_type());
  const at::Tensor scale = scale_.to(weights.scalar_type());
  const auto part = [&](int64_t which, int64_t begin, int64_t count) {
    return weights.narrow(-1, begin, count) * scale[which] + base.narrow(0, begin, count);
  };
  CollapsedStreams out;
  const at::Tensor collapse = kernels::sigmoid(part(0, 0, n)) + options_.eps;
  out.expand = kernels::sigmoid(part(1, n, n)) * 2;
  const at::Tensor rows = part(2, 2 * n, n * n).unflatten(-1, {n, n}).softmax(-1) + options_.eps;
  out.mix = doubly_stochastic(rows, options_.sinkhorn_iterations, options_.eps);
  out.input = weighted_sum(streams, collapse);
  return out;
}

at::Tensor HyperConnection::expand(const at::Tensor& result, const at::Tensor& streams,
                                   const CollapsedStreams& collapsed) const {
  const at::ScalarType dtype = streams.scalar_type();
  const at::Tensor mixed = at::matmul(collapsed.mix.to(dtype).transpose(-1, -2),
                                      streams.unflatten(-1, {options_.num_streams, -1}));
  const at::Tensor expanded = collapsed.expand.to(dtype).unsqueeze(-1) * result.unsqueeze(-2);
  return (mixed + expanded).flatten(-2).to(dtype);
}

HyperHead::HyperHead(const HyperConnectionOptions& options, at::ScalarType dtype)
    : options_(options) {
  const at::ScalarType wide = tensor::wide_dtype(dtype);
  fn_ = register_parameter("fn", placeholder({options.num_streams, options.stream_dims()}, wide));
  base_ = register_parameter("base", placeholder({options.num_streams}, wide));
  scale_ = register_parameter("scale", placeholder({1}, wide));
}

at::Tensor HyperHead::forward(const at::Tensor& streams) const {
  const at::Tensor weights = projected(streams, fn_, options_.norm_eps);
  const at::ScalarType wide = weights.scalar_type();
  const at::Tensor shares =
      kernels::sigmoid(weights * scale_.to(wide) + base_.to(wide)) + options_.eps;
  return weighted_sum(streams, shares);
}

}  // namespace automodel::nn
