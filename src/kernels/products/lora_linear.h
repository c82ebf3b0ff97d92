#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace automodel::kernels {

/// Output features [first, first + count) of a layer.
struct OutputRange {
  int64_t first = 0;
  int64_t count = 0;
};

/// The low-rank adapters of a layer; several if its output features belong to several matrices.
/// Adapter p adds scale * (x A_p^T) B_p^T to its range of the output.
struct LoraFactors {
  at::Tensor a;  ///< [num_adapters * rank, in]: A_p are the rows from p * rank on
  at::Tensor b;  ///< [sum of counts, rank]: the B_p one after another
  std::vector<OutputRange> ranges;
  double scale = 1;

  int64_t rank() const { return b.size(1); }
};

/// linear(x, weight, bias) with adapters of the same dtype; weight [out, in] and bias are frozen:
/// they get no gradient. Differentiable in x and the factors. Keeps x and the small products x A^T
/// for the backward pass.
at::Tensor lora_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const LoraFactors& lora);

}  // namespace automodel::kernels
