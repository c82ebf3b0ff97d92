#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

namespace automodel::nn {

/// Residual connections over several streams of hidden states (manifold-constrained
/// hyper-connections, mHC, of DeepSeek V4).
struct HyperConnectionOptions {
  int64_t num_streams = 0;
  int64_t hidden_size = 0;
  int64_t sinkhorn_iterations = 20;
  double eps = 1e-6;       ///< added to weights and to the sums that they are divided by
  double norm_eps = 1e-6;  ///< of the streams' norm before the weights' projection

  int64_t stream_dims() const { return num_streams * hidden_size; }
  /// Weights of a token: of collapsing and of expanding each stream, and of mixing each with each.
  int64_t num_weights() const { return num_streams * (2 + num_streams); }
};

/// What a branch (attention or MLP) of a layer reads of the streams, and how its result returns.
struct CollapsedStreams {
  at::Tensor input;   ///< [B, S, D], the streams' dtype
  at::Tensor expand;  ///< [B, S, N]: the result's weight in each stream
  at::Tensor mix;     ///< [B, S, N, N], rows and columns of sum one: stream i's weight in stream j
};

/// Streams around one branch of a layer. Streams are [B, S, N D], N streams of D dims one behind
/// the other. Parameters fn [N (2 + N), N D] (rows: collapse, expand, mix), base [N (2 + N)] and
/// scale [3] are float32 in a model of any narrower dtype, and so are the weights made of them.
class HyperConnection final : public torch::nn::Module {
 public:
  HyperConnection(const HyperConnectionOptions& options, at::ScalarType dtype);

  /// The weighted sum of the streams, with weights made of the token's streams themselves.
  CollapsedStreams collapse(const at::Tensor& streams) const;

  /// The streams after the branch: mixed, plus the branch's result [B, S, D] in each.
  at::Tensor expand(const at::Tensor& result, const at::Tensor& streams,
                    const CollapsedStreams& collapsed) const;

 private:
  HyperConnectionOptions options_;
  at::Tensor fn_;
  at::Tensor base_;
  at::Tensor scale_;
};

/// The sum of the streams behind the last layer: parameters fn [N, N D], base [N], scale [1].
class HyperHead final : public torch::nn::Module {
 public:
  HyperHead(const HyperConnectionOptions& options, at::ScalarType dtype);

  /// Streams [B, S, N D] to [B, S, D] of their dtype.
  at::Tensor forward(const at::Tensor& streams) const;

 private:
  HyperConnectionOptions options_;
  at::Tensor fn_;
  at::Tensor base_;
  at::Tensor scale_;
};

/// Positive matrices [..., N, N] whose rows sum to one, plus `eps`, to ones whose columns do and
/// whose rows nearly do: `iterations` divisions by columns' sums, and between them by rows' sums
/// (Sinkhorn and Knopp). Differentiable.
at::Tensor doubly_stochastic(const at::Tensor& matrices, int64_t iterations, double eps);

}  // namespace automodel::nn
