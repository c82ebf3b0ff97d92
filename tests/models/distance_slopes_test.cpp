#include "models/decoder/distance_slopes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace automodel::models::decoder {
namespace {

/// What with_distances() adds to the scaled scores of each query and key.
at::Tensor added_scores(at::ScalarType dtype, const std::vector<double>& slopes, int64_t length,
                        const at::Tensor& position_ids, double scale) {
  const auto heads = static_cast<int64_t>(slopes.size());
  const at::Tensor none = at::zeros({1, length, heads, 8}, at::TensorOptions().dtype(dtype));
  const auto [q, k] = with_distances(none, none.narrow(2, 0, 1), slopes, position_ids, scale);
  EXPECT_EQ(q.scalar_type(), dtype);
  EXPECT_EQ(q.size(-1), 8 + kDistanceDims);
  return at::einsum("bqnh,bkh->nqk", {q.to(at::kDouble), k.select(2, 0).to(at::kDouble)}) * scale;
}

TEST(DistanceSlopes, AreExactInNarrowDtypes) {
  const std::vector<double> slopes = {std::exp2(-0.7), 0.3, std::exp2(-7.9)};
  constexpr int64_t kLength = 5000;
  const at::Tensor places = at::arange(kLength - 3, kLength).unsqueeze(0);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor found = added_scores(dtype, slopes, 3, places, 0.125);
    for (int64_t head = 0; head < 3; ++head) {
      for (int64_t key = 0; key < 3; ++key) {
        const double wanted =
            slopes[static_cast<size_t>(head)] * static_cast<double>(kLength - 3 + key);
        EXPECT_NEAR(found[head][1][key].item<double>() / wanted, 1, 2e-7) << dtype;
      }
    }
  }
}

TEST(DistanceSlopes, PositionsCountFromZeroWhereNothingSaysMore) {
  const at::Tensor found = added_scores(at::kFloat, {0.5, 0.25}, 4, {}, 1.0);
  EXPECT_EQ(found[0][2][3].item<double>(), 1.5);
  EXPECT_EQ(found[1][0][2].item<double>(), 0.5);
  EXPECT_EQ(found[1][3][0].item<double>(), 0);
}

}  // namespace
}  // namespace automodel::models::decoder
