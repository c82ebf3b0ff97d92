#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <initializer_list>

#include "kernels/cpu/loops.h"

namespace automodel::kernels {

/// True when the fused loops can take the tensors: all defined ones are on the CPU and are all
/// float32 or all bfloat16, and no PlainPathScope is active.
bool is_fusable(std::initializer_list<at::Tensor> tensors);

/// True when products of the tensors may be written, or added, to memory that is there:
/// is_fusable(), or all defined ones are on one device other than the CPU and of one dtype, and no
/// PlainPathScope is active.
bool is_fusable_product(std::initializer_list<at::Tensor> tensors);

/// Calls `body` with a number of the type in which the loops read a fusable tensor's memory: float
/// or cpu::Bfloat16.
template <typename Body>
decltype(auto) by_storage(const at::Tensor& tensor, const Body& body) {
  return tensor.scalar_type() == at::kFloat ? body(float{}) : body(cpu::Bfloat16{});
}

inline bool is_bfloat16(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16;
}

/// The address of a tensor's first number, T as by_storage() chooses; null for an undefined tensor.
template <typename T>
T* numbers_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

/// During its lifetime, kernels called by this thread take the plain path of other devices, even
/// for float32 and 16 bits on the CPU. For comparisons of the two paths, with forward and backward
/// inside one scope; training never makes one.
///
/// A thread-local switch rather than a parameter: the layers of every model are between the caller
/// and the kernels.
class PlainPathScope final {
 public:
  explicit PlainPathScope(bool is_asked = true);
  ~PlainPathScope();
  PlainPathScope(const PlainPathScope&) = delete;
  PlainPathScope& operator=(const PlainPathScope&) = delete;

 private:
  bool was_asked_;
};

/// Whether a scope of this thread is active.
bool is_plain_path_asked();

/// Runs `body(block_begin, block_end, partial)` over blocks of rows on all threads; `partial` is a
/// zeroed row of `width` floats per block. Returns the sum of the rows, taken in the order of the
/// blocks, so that it does not depend on the number of threads.
at::Tensor sum_over_blocks(int64_t rows, int64_t width,
                           const std::function<void(int64_t, int64_t, float*)>& body);

}  // namespace automodel::kernels
