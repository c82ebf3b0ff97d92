#include "kernels/base/dynamic_codes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"

namespace automodel::kernels {

namespace {

using cpu::EightBitMap;

/// `count` float32 numbers from 0.1 to 1 at equal distances, as torch.linspace computes them with
/// fused multiply-add, whatever the instructions of this CPU.
at::Tensor tenth_to_one(int64_t count) {
  const float step = (1.0F - 0.1F) / static_cast<float>(count - 1);
  at::Tensor numbers = at::empty({count}, at::kFloat);
  float* out = numbers.mutable_data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) {
    const auto to_end = static_cast<float>(count - 1 - i);
    out[i] =
        i < count / 2 ? std::fma(step, static_cast<float>(i), 0.1F) : std::fma(-step, to_end, 1.0F);
  }
  return numbers;
}

at::Tensor make_codes(bool is_signed) {
  constexpr int kExponents = 7;
  std::vector<at::Tensor> parts;
  for (int i = 0; i < kExponents; ++i) {
    const at::Tensor borders = tenth_to_one((int64_t{1} << (is_signed ? i : i + 1)) + 1);
    const int64_t count = borders.numel() - 1;
    const at::Tensor means = (borders.narrow(0, 0, count) + borders.narrow(0, 1, count)) / 2.0;
    const double power = std::pow(10.0, i - (kExponents - 1));
    parts.push_back(means * power);
    if (is_signed) parts.push_back(means * -power);
  }
  parts.push_back(at::tensor({0.0F, 1.0F}));
  return std::get<0>(at::cat(parts).sort());
}

/// The code of the value nearest to a number; halfway, the lower one.
int32_t nearest(const EightBitMap& map, float number) {
  const float* const end = map.borders + 255;
  return static_cast<int32_t>(std::lower_bound(map.borders, end, number) - map.borders);
}

EightBitMap make_map(const at::Tensor& codes) {
  EightBitMap map;
  std::copy_n(codes.const_data_ptr<float>(), 256, map.values);
  for (int i = 0; i < 255; ++i) map.borders[i] = (map.values[i] + map.values[i + 1]) / 2.0F;
  map.borders[255] = std::numeric_limits<float>::infinity();
  for (int32_t cell = 0; cell < EightBitMap::kNumCells; ++cell) {
    // Magnitudes from `least` to `most` are in the cell; the first one has all that are smaller.
    const auto bits = static_cast<uint32_t>(EightBitMap::kFirstCell + cell) << 16;
    const float least = cell == 0 ? 0.0F : std::bit_cast<float>(bits);
    const float most = std::bit_cast<float>(bits | 0xffffU);
    map.codes[cell] = nearest(map, least);
    map.codes[EightBitMap::kNumCells + cell] = nearest(map, -most);
    AM_CHECK(nearest(map, most) - nearest(map, least) <= 1);
    AM_CHECK(nearest(map, -least) - nearest(map, -most) <= 1);
  }
  return map;
}

}  // namespace

const at::Tensor& dynamic_codes(bool is_signed) {
  static const at::Tensor with_sign = make_codes(true);
  static const at::Tensor without_sign = make_codes(false);
  return is_signed ? with_sign : without_sign;
}

const cpu::EightBitMap& dynamic_map(bool is_signed) {
  static const EightBitMap with_sign = make_map(dynamic_codes(true));
  static const EightBitMap without_sign = make_map(dynamic_codes(false));
  return is_signed ? with_sign : without_sign;
}

}  // namespace automodel::kernels
