#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <initializer_list>

namespace automodel::kernels {

/// True when every defined tensor is float32 on the CPU: the fused loops' domain.
bool is_fusable(std::initializer_list<at::Tensor> tensors);

/// Runs `body(block_begin, block_end, partial)` over blocks of rows on all threads; `partial` is a
/// zeroed row of `width` floats per block. Returns the sum of the rows, taken in the order of the
/// blocks, so that it does not depend on the number of threads.
at::Tensor sum_over_blocks(int64_t rows, int64_t width,
                           const std::function<void(int64_t, int64_t, float*)>& body);

}  // namespace automodel::kernels
