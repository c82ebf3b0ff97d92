#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <utility>

#include "kernels/norm.h"

namespace automodel::nn {

struct LinearOptions {
  int64_t in_features = 0;
  int64_t out_features = 0;
  bool has_bias = false;
  bool is_transposed = false;  ///< the weight is stored [in, out] (GPT-2's Conv1D)
};

/// y = x W^T + b. Parameters: weight [out, in] (or [in, out]), bias [out]; without memory until
/// somebody gives it to them.
class Linear final : public torch::nn::Module {
 public:
  Linear(const LinearOptions& options, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x) const;
  const at::Tensor& weight() const { return weight_; }

 private:
  LinearOptions options_;
  at::Tensor weight_;
  at::Tensor bias_;
};

struct EmbeddingOptions {
  int64_t num_rows = 0;
  int64_t dim = 0;
  int64_t padding_idx = -1;  ///< a row that gets no gradient from the lookup; -1: none
};

/// Rows of a table: weight [rows, dim].
class Embedding final : public torch::nn::Module {
 public:
  Embedding(const EmbeddingOptions& options, at::ScalarType dtype);

  /// ids int64 [...] to [..., dim]. Ids must lie inside the table.
  at::Tensor forward(const at::Tensor& ids) const;
  const at::Tensor& weight() const { return weight_; }

 private:
  EmbeddingOptions options_;
  at::Tensor weight_;
};

/// A norm over the last dim.
class Norm : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) const = 0;
  /// {x + residual, norm(x + residual)}, in one pass where there is such a kernel.
  virtual std::pair<at::Tensor, at::Tensor> add(const at::Tensor& x,
                                                const at::Tensor& residual) const = 0;
};

/// RMSNorm: weight [dim].
class RmsNorm final : public Norm {
 public:
  RmsNorm(int64_t dim, const kernels::NormOptions& options, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x) const override;
  std::pair<at::Tensor, at::Tensor> add(const at::Tensor& x,
                                        const at::Tensor& residual) const override;
  const at::Tensor& weight() const { return weight_; }

 private:
  kernels::NormOptions options_;
  at::Tensor weight_;
};

/// LayerNorm: weight [dim], bias [dim].
class LayerNorm final : public Norm {
 public:
  LayerNorm(int64_t dim, double eps, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x) const override;
  std::pair<at::Tensor, at::Tensor> add(const at::Tensor& x,
                                        const at::Tensor& residual) const override;

 private:
  double eps_;
  at::Tensor weight_;
  at::Tensor bias_;
};

}  // namespace automodel::nn
