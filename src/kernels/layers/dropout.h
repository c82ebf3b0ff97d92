#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kernels/cpu/loops.h"
#include "tensor/random.h"

namespace automodel::kernels {

/// What dropout keeps of a tensor: the elements whose number in the key's stream is at least p.
/// They are multiplied by 1 / (1 - p). Which they are is never stored: backward draws them again.
struct DropoutMask {
  double p = 0;
  tensor::RandomKey key{0, uint64_t{0}};

  bool drops() const { return p > 0; }
  double scale() const { return p < 1 ? 1.0 / (1.0 - p) : 0.0; }
  /// The mask for the loops.
  cpu::DropoutStream stream() const;
  /// Elements first, first + 1, ...: bool [numel] on the CPU, true where they are kept.
  at::Tensor kept(uint64_t first, int64_t numel) const;
};

/// Neighbouring elements of a tensor that are neighbours in its mask too.
struct DropoutSpan {
  uint64_t first = 0;  ///< element of the mask
  int64_t numel = 0;
};

/// Adds a span behind others; one that goes on where the last ends makes it longer.
void add_span(std::vector<DropoutSpan>& spans, const DropoutSpan& span);

/// x of any shape with zeros where the mask drops. `spans` say which elements of the mask x holds,
/// in the order of x, all of it. Differentiable once.
at::Tensor dropout(const at::Tensor& x, const DropoutMask& mask,
                   const std::vector<DropoutSpan>& spans);

/// dropout() by ATen's operations and a mask in memory.
at::Tensor dropout_reference(const at::Tensor& x, const DropoutMask& mask,
                             const std::vector<DropoutSpan>& spans);

}  // namespace automodel::kernels
