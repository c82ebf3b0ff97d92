#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace automodel::kernels {

/// The sixteen values that 4 bits stand for.
enum class FourBitType {
  kNf4,  ///< quantiles of a normal distribution (Dettmers et al. 2023)
  kFp4,  ///< a sign, two bits of exponent and one of mantissa
};

/// How matrices are held in 4 bits, as bitsandbytes holds them: 64 elements, read row by row, share
/// a factor, the largest magnitude among them.
struct FourBitFormat {
  FourBitType type = FourBitType::kNf4;
  /// The factors are held in 8 bits, 256 of them with a factor of their own, less their mean.
  bool has_quantized_factors = true;
  at::ScalarType dtype = at::kBFloat16;  ///< of what was quantized; backward passes round to it
};

/// Elements that share a factor: a matrix has a multiple of so many.
inline constexpr int64_t kFourBitBlock = 64;

/// Bytes of a matrix of so many elements: the elements, two a byte, the first one in the upper
/// half; the factors, float32 or 8 bits; with 8 bits the factors' own factors and the mean,
/// float32. Each of these begins on a border of 64 bytes.
int64_t four_bit_bytes(int64_t numel, const FourBitFormat& format);

/// The bytes of a matrix: uint8 on the device of `values` (any floating dtype). The numbers are
/// those of bitsandbytes' quantize_4bit.
at::Tensor quantize_four_bit(const at::Tensor& values, const FourBitFormat& format);

/// Matrices that are rows of one weight, each quantized by itself.
struct FourBitWeight {
  at::Tensor bytes;           ///< uint8, one matrix behind another
  std::vector<int64_t> rows;  ///< of each matrix
  int64_t cols = 0;
  FourBitFormat format;

  int64_t num_rows() const;
  /// The values, [num_rows, cols], rounded once to `dtype`.
  at::Tensor values(at::ScalarType dtype) const;
};

/// linear(x, weight, bias) in x's dtype, whose weight and bias are frozen. Differentiable in x. The
/// values are made for the forward and again for the backward pass, which keeps bytes only and
/// rounds the values to the format's dtype first, as bitsandbytes does.
at::Tensor four_bit_linear(const at::Tensor& x, const FourBitWeight& weight,
                           const at::Tensor& bias);

}  // namespace automodel::kernels
