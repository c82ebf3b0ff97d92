#pragma once

#include <ATen/core/Tensor.h>

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
  bool adds = false;     ///< to what `out` holds
  double alpha = 1;      ///< times the product
  at::Tensor bias = {};  ///< [n], added to each row; or undefined
};

/// Whether this is a float16 tensor on the CPU, which is faster to multiply in float32.
bool is_slow_to_multiply(const at::Tensor& tensor);

/// out [m, n] = a [m, k] b [k, n], all of one dtype. The loops use all threads unless the caller is
/// one of several, with the same bits on any number of them. They read bfloat16 in place, sum in
/// float32 and round once. Float16 on the CPU is multiplied in float32; ATen computes the rest.
/// `out` may be any view with contiguous rows.
void product_into(const Factor& a, const Factor& b, const at::Tensor& out,
                  const ProductOptions& options = {});

/// Bytes that a thread works in while the loops make a product [m, n] of k steps, of floats or of
/// bfloat16, on a CPU without tiles: a plan is the same for every CPU.
int64_t product_scratch_bytes(int64_t m, int64_t n, int64_t k, bool is_bfloat16);

/// Matrices in memory, on the calling thread.
void multiply_part(const cpu::ProductPart& part);

/// product_into() a new matrix, which is returned.
at::Tensor product(const Factor& a, const Factor& b, const ProductOptions& options = {});

}  // namespace automodel::kernels
