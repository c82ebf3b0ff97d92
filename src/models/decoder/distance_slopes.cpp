#include "models/decoder/distance_slopes.h"

#include <ATen/ATen.h>

#include <bit>
#include <cmath>

#include "tensor/dtype.h"

namespace automodel::models::decoder {

std::vector<double> alibi_slopes(int64_t num_heads) {
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(num_heads)));
  const auto slope = [](int64_t number, int64_t of) {
    return std::exp2(-8.0 * static_cast<double>(number) / static_cast<double>(of));
  };
  std::vector<double> slopes;
  for (int64_t i = 1; i <= power; ++i) slopes.push_back(slope(i, power));
  for (int64_t i = 1; std::ssize(slopes) < num_heads; i += 2) slopes.push_back(slope(i, 2 * power));
  return slopes;
}

namespace {

/// A position's parts and a slope's factors of them, which are multiplied dim by dim.
struct DistanceDims {
  std::vector<at::Tensor> positions;  ///< [B, S] or [1, S] each
  std::vector<at::Tensor> slopes;     ///< [N] each
};

DistanceDims dims_of(const at::Tensor& positions, at::Tensor slopes, at::ScalarType dtype) {
  if (tensor::wide_dtype(dtype) == dtype) return {{positions.to(dtype)}, {slopes.to(dtype)}};
  // Whole numbers up to 256 are exact in bfloat16 and float16.
  constexpr int64_t kStep = 256;
  const at::Tensor high = positions.div(kStep, "floor");
  const at::Tensor low = positions - high * kStep;
  DistanceDims dims;
  constexpr int kNumParts = 3;
  for (int i = 0; i < kNumParts; ++i) {
    const at::Tensor part = slopes.to(dtype);
    slopes = slopes - part.to(slopes.scalar_type());
    dims.positions.insert(dims.positions.end(), {high.to(dtype), low.to(dtype)});
    dims.slopes.insert(dims.slopes.end(), {part * kStep, part});
  }
  return dims;
}

/// x [B, S, N, H] and, behind it, columns [..., C] and zeros.
at::Tensor with_columns(const at::Tensor& x, const at::Tensor& columns) {
  const at::Tensor padded = at::constant_pad_nd(columns, {0, kDistanceDims - columns.size(-1)}, 0);
  return at::cat({x, padded.expand({x.size(0), x.size(1), x.size(2), kDistanceDims})}, -1);
}

}  // namespace

std::pair<at::Tensor, at::Tensor> with_distances(const at::Tensor& q, const at::Tensor& k,
                                                 const std::vector<double>& slopes,
                                                 const at::Tensor& position_ids, double scale) {
  const at::TensorOptions whole = q.options().dtype(at::kLong).requires_grad(false);
  const at::Tensor positions =
      position_ids.defined() ? position_ids : at::arange(q.size(1), whole).unsqueeze(0);
  const at::Tensor factors =
      (at::tensor(slopes, at::TensorOptions().dtype(at::kDouble)) / scale).to(q.device());
  const DistanceDims dims = dims_of(positions, factors, q.scalar_type());
  return {with_columns(q, at::stack(dims.slopes, -1)),
          with_columns(k, at::stack(dims.positions, -1).unsqueeze(2))};
}

}  // namespace automodel::models::decoder
