#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <utility>

namespace automodel::kernels {

namespace cpu {
struct ProductPart;
}

/// A matrix of a product: [R, C], or those rows of a larger matrix that ids select.
struct Factor {
  at::Tensor matrix;
  at::Tensor rows = {};  ///< int64 on matrix's device, or undefined: all of them
  bool is_transposed = false;

  Factor(at::Tensor matrix, at::Tensor rows = {})  // NOLINT: a tensor is a factor
      : matrix(std::move(matrix)), rows(std::move(rows)) {}

  Factor t() const;
  int64_t size(int64_t dim) const;
  /// The rows as a matrix; selected rows are copied.
  at::Tensor tensor() const;
};

/// How a product's result is written.
struct ProductOptions {
  bool adds = false;  ///< to the values of `out`
  double alpha = 1;   ///< factor of the product
};

/// Whether this is a float16 tensor on the CPU, which is faster to multiply in float32.
bool is_slow_to_multiply(const at::Tensor& tensor);

/// Whether our own loops multiply these matrices: on the CPU, all float32, or all bfloat16 if ATen
/// is not faster for these.
bool has_product_loop(std::initializer_list<at::Tensor> matrices);

/// out [m, n] = a [m, k] b [k, n], all of one dtype. The loops use all threads unless the caller is
/// one of several, with the same bits on any number of them. They read bfloat16 in place, sum in
/// float32 and round once. Float16 on the CPU is multiplied in float32; ATen computes the rest.
/// `out` may be any view with contiguous rows.
void product_into(const Factor& a, const Factor& b, const at::Tensor& out,
                  const ProductOptions& options = {});

/// Multiplies matrices in memory, on the calling thread.
void multiply_part(const cpu::ProductPart& part);

/// product_into() a new matrix; returns it.
at::Tensor product(const Factor& a, const Factor& b);

}  // namespace automodel::kernels
