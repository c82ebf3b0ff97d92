#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <initializer_list>

#include "kernels/cpu/loops.h"

namespace automodel::kernels {

/// True when every defined tensor is on the CPU, all are float32 or all bfloat16, the fused loops'
/// domain, and nobody asked for the plain path.
bool is_fusable(std::initializer_list<at::Tensor> tensors);

/// Calls `body` with a number of the type in which the loops see the memory of a tensor that is
/// fusable: float or cpu::Bfloat16.
template <typename Body>
decltype(auto) by_storage(const at::Tensor& tensor, const Body& body) {
  return tensor.scalar_type() == at::kFloat ? body(float{}) : body(cpu::Bfloat16{});
}

inline bool is_bfloat16(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16;
}

/// Where a tensor's numbers begin, T as by_storage() says; null for an undefined one.
template <typename T>
T* numbers_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

/// While it lives, kernels that this thread calls take the plain path, that of other devices, with
/// float32 and 16 bits on the CPU too. For those who compare the two: forward and backward of a
/// comparison lie inside one scope; nothing that trains makes one.
///
/// A thread-local switch and not a parameter: between whoever compares and the kernels lie the
/// layers of every model.
class PlainPathScope final {
 public:
  explicit PlainPathScope(bool is_asked = true);
  ~PlainPathScope();
  PlainPathScope(const PlainPathScope&) = delete;
  PlainPathScope& operator=(const PlainPathScope&) = delete;

 private:
  bool was_asked_;
};

/// Whether a scope of this thread asks for the plain path.
bool is_plain_path_asked();

/// Runs `body(block_begin, block_end, partial)` over blocks of rows on all threads; `partial` is a
/// zeroed row of `width` floats per block. Returns the sum of the rows, taken in the order of the
/// blocks, so that it does not depend on the number of threads.
at::Tensor sum_over_blocks(int64_t rows, int64_t width,
                           const std::function<void(int64_t, int64_t, float*)>& body);

}  // namespace automodel::kernels
