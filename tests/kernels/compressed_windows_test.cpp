#include "kernels/attention/compressed_windows.h"

#include <cmath>

#include "kernels/attention/visible_keys.h"
#include "kernels/differentiation.h"

namespace automodel::kernels {
namespace {

constexpr int64_t kLength = 14, kDim = 3;

at::Tensor token_ids() {
  return at::zeros({2, kLength}, at::kLong);
}

/// Documents of 9 and 5 tokens; of the second sequence 2 and 12, the last 3 of them padding.
at::Tensor some_documents() {
  const at::Tensor places = at::arange(kLength, at::kLong);
  return at::stack({places.ge(9), places.ge(2)}).to(at::kLong);
}

at::Tensor some_padding() {
  const at::Tensor places = at::arange(kLength, at::kLong);
  return at::stack({places.lt(0), places.ge(11)});
}

at::Tensor some_positions() {
  const at::Tensor places = at::arange(kLength, at::kLong);
  return at::stack(
      {at::where(places.ge(9), places - 9, places), at::where(places.ge(2), places - 2, places)});
}

CompressedWindows some_windows(int64_t rate) {
  return compressed_windows(token_ids(),
                            {.rate = rate,
                             .visible_keys = *visible_keys(some_padding(), some_documents()),
                             .position_ids = some_positions()});
}

std::vector<int64_t> row(const at::Tensor& x) {
  const at::Tensor flat = x.contiguous().flatten();
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

TEST(CompressedWindows, CutASequenceFromItsFirstTokenAndLeaveTheRest) {
  const CompressedWindows windows = compressed_windows(token_ids(), {.rate = 4});
  ASSERT_EQ(windows.num_windows(), 3);
  for (int64_t b = 0; b < 2; ++b) {
    EXPECT_EQ(row(windows.tokens[b]), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    EXPECT_EQ(row(windows.position_ids[b]), (std::vector<int64_t>{0, 4, 8}));
    EXPECT_EQ(row(windows.follows[b].to(at::kLong)), (std::vector<int64_t>{0, 1, 1}));
    for (int64_t query = 0; query < kLength; ++query) {
      EXPECT_EQ(row(windows.visible_keys[b][query]), (std::vector<int64_t>{0, (query + 1) / 4}));
    }
  }
}

TEST(CompressedWindows, BeginAnewWithEachDocumentAndHidePaddingFromTokens) {
  const CompressedWindows windows = some_windows(4);
  ASSERT_EQ(windows.num_windows(), 3);
  EXPECT_EQ(row(windows.tokens[0]), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12}));
  EXPECT_EQ(row(windows.tokens[1]), (std::vector<int64_t>{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}));
  EXPECT_EQ(row(windows.position_ids[0]), (std::vector<int64_t>{0, 4, 0}));
  EXPECT_EQ(row(windows.follows[0].to(at::kLong)), (std::vector<int64_t>{0, 1, 0}));
  EXPECT_EQ(row(windows.follows[1].to(at::kLong)), (std::vector<int64_t>{0, 1, 1}));
  const auto sees = [&](int64_t b, int64_t query) { return row(windows.visible_keys[b][query]); };
  EXPECT_EQ(sees(0, 2), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(sees(0, 3), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(sees(0, 8), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(sees(0, 9), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(sees(0, 12), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(sees(1, 1), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(sees(1, 5), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(sees(1, 10), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(sees(1, 13), (std::vector<int64_t>{0, 3}));
}

TEST(CompressedWindows, BeginBehindPadding) {
  const at::Tensor padding = at::arange(kLength, at::kLong).lt(3).expand({2, kLength});
  const CompressedWindows windows =
      compressed_windows(token_ids(), {.rate = 5, .visible_keys = *visible_keys(padding, {})});
  ASSERT_EQ(windows.num_windows(), 2);
  EXPECT_EQ(row(windows.tokens[0]), (std::vector<int64_t>{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(row(windows.visible_keys[1][6]), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(row(windows.visible_keys[1][7]), (std::vector<int64_t>{0, 1}));
}

TEST(CompressedWindows, AreNoneInShortSequences) {
  const CompressedWindows windows = compressed_windows(token_ids(), {.rate = 15});
  EXPECT_EQ(windows.num_windows(), 0);
  const at::Tensor x = at::ones({2, kLength, kDim});
  EXPECT_EQ(pooled_windows(x, x, at::ones({15, kDim}), windows, kDim).sizes(),
            (at::IntArrayRef{2, 0, kDim}));
}

TEST(CompressedWindows, SlidingRunsEndWithTheQueryInItsDocument) {
  const at::Tensor runs =
      sliding_runs(token_ids(), *visible_keys(some_padding(), some_documents()), 4);
  EXPECT_EQ(row(runs[0][2]), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(row(runs[0][8]), (std::vector<int64_t>{5, 9}));
  EXPECT_EQ(row(runs[0][10]), (std::vector<int64_t>{9, 11}));
  EXPECT_EQ(row(runs[1][1]), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(row(runs[1][4]), (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(row(runs[1][12]), (std::vector<int64_t>{9, 11}));
  EXPECT_EQ(row(sliding_runs(token_ids(), {}, 4)[1][8]), (std::vector<int64_t>{5, 9}));
}

/// One number of a key, from the softmax's definition.
double pooled_number(const Tensors& in, const CompressedWindows& windows, int64_t b, int64_t w,
                     int64_t dim) {
  const int64_t rate = windows.tokens.size(2);
  const bool is_overlapping = in[0].size(2) == 2 * kDim;
  double sum = 0, total = 0;
  const auto add = [&](int64_t window, int64_t column) {
    for (int64_t i = 0; i < rate; ++i) {
      const int64_t token = windows.tokens[b][window][i].item<int64_t>();
      const double weight =
          std::exp(in[1][b][token][column].item<double>() + in[2][i][column].item<double>());
      total += weight;
      sum += weight * in[0][b][token][column].item<double>();
    }
  };
  add(w, is_overlapping ? kDim + dim : dim);
  if (is_overlapping && windows.follows[b][w].item<bool>()) add(w - 1, dim);
  return sum / total;
}

Tensors some_inputs(int64_t rate, int64_t width) {
  Numbers numbers(7);
  return {numbers.normal({2, kLength, width}), numbers.normal({2, kLength, width}),
          numbers.normal({rate, width})};
}

TEST(PooledWindows, AreSumsOfTheirTokensWeightedByASoftmaxOfTheirGates) {
  for (const int64_t rate : {1, 4}) {
    for (const int64_t width : {kDim, 2 * kDim}) {
      const CompressedWindows windows = some_windows(rate);
      Tensors in = some_inputs(rate, width);
      for (at::Tensor& x : in) x = x.to(at::kDouble);
      const at::Tensor found = pooled_windows(in[0], in[1], in[2], windows, kDim);
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t w = 0; w < windows.num_windows(); ++w) {
          for (int64_t dim = 0; dim < kDim; ++dim) {
            EXPECT_NEAR(found[b][w][dim].item<double>(), pooled_number(in, windows, b, w, dim),
                        1e-13)
                << rate << " " << width << " " << b << " " << w;
          }
        }
      }
    }
  }
}

TEST(PooledWindows, OfSixteenBitsAreRoundedOnce) {
  const CompressedWindows windows = some_windows(4);
  const Operation pool = [&](const Tensors& in) {
    return Tensors{pooled_windows(in[0], in[1], in[2], windows, kDim)};
  };
  Tensors held;
  for (const at::Tensor& x : some_inputs(4, 2 * kDim)) held.push_back(x.to(at::kBFloat16));
  const Tensors exact = differentiate(pool, held, at::kDouble);
  const Tensors found = differentiate(pool, held, at::kBFloat16);
  EXPECT_EQ(found[0].scalar_type(), at::kBFloat16);
  // Half of the last of 8 bits, in each number.
  EXPECT_LE(relative_error(found[0], exact[0]), 1.0 / 512);
}

}  // namespace
}  // namespace automodel::kernels
