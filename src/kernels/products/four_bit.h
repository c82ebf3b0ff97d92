#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace automodel::kernels {

/// Which sixteen values 4 bits encode.
enum class FourBitType {
  kNf4,  ///< quantiles of a normal distribution (Dettmers et al. 2023)
  kFp4,  ///< a sign, two bits of exponent and one of mantissa
};

/// The format of matrices in 4 bits, bitsandbytes': each 64 elements, read row by row, share a
/// factor, the largest magnitude among them.
struct FourBitFormat {
  FourBitType type = FourBitType::kNf4;
  /// Whether factors are held in 8 bits: their mean is subtracted, and 256 of them share a factor.
  bool has_quantized_factors = true;
  at::ScalarType dtype = at::kBFloat16;  ///< of the quantized values; backward rounds to it
};

/// Elements that share a factor; a matrix's number of elements must be a multiple of it.
inline constexpr int64_t kFourBitBlock = 64;

/// The number of bytes of a matrix of `numel` elements: the elements, two per byte, the first in
/// the upper half; the factors, float32 or 8 bits; with 8 bits also the factors' own factors and
/// the mean, float32. Each part begins on a 64-byte border.
int64_t four_bit_bytes(int64_t numel, const FourBitFormat& format);

/// Quantizes a matrix of any floating dtype; returns uint8 on its device. The numbers are those of
/// bitsandbytes' quantize_4bit.
at::Tensor quantize_four_bit(const at::Tensor& values, const FourBitFormat& format);

/// Matrices that are rows of one weight, each quantized separately.
struct FourBitWeight {
  at::Tensor bytes;           ///< uint8, the matrices one after another
  std::vector<int64_t> rows;  ///< of each matrix
  int64_t cols = 0;
  FourBitFormat format;

  int64_t num_rows() const;
  /// The values, [num_rows, cols], rounded once to `dtype`.
  at::Tensor values(at::ScalarType dtype) const;
};

/// linear(x, weight, bias) in x's dtype; weight and bias are frozen. Differentiable in x. The
/// values are dequantized for forward and again for backward, so only bytes are saved; backward
/// first rounds the values to the format's dtype, as bitsandbytes does.
at::Tensor four_bit_linear(const at::Tensor& x, const FourBitWeight& weight,
                           const at::Tensor& bias);

}  // namespace automodel::kernels
