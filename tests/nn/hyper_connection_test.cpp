#include "nn/hyper_connection.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "nn/grouped_linear.h"

namespace automodel {
namespace {

constexpr int64_t kStreams = 3, kDim = 2;

const nn::HyperConnectionOptions kOptions{.num_streams = kStreams,
                                          .hidden_size = kDim,
                                          .sinkhorn_iterations = 4,
                                          .eps = 1e-3,
                                          .norm_eps = 1e-4};

/// Gives every parameter memory with values that depend on its position.
void fill(torch::nn::Module& module) {
  double seed = 0.3;
  for (const auto& item : module.named_parameters()) {
    at::Tensor parameter = item.value();
    const at::Tensor values = at::arange(1, parameter.numel() + 1, parameter.options());
    parameter.set_data(values.mul(seed).sin().view(parameter.sizes()));
    seed += 0.4;
  }
}

using Numbers = std::vector<double>;

Numbers numbers_of(const at::Tensor& x) {
  const at::Tensor flat = x.detach().to(at::kDouble).contiguous().flatten();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

/// What one token's weights are, number by number.
struct Weights {
  Numbers collapse, expand, mix;

  Weights(const torch::nn::Module& module, const Numbers& streams) {
    const auto parameters = module.named_parameters();
    const Numbers fn = numbers_of(parameters["fn"]), base = numbers_of(parameters["base"]),
                  scale = numbers_of(parameters["scale"]);
    double squares = 0;
    for (const double x : streams) squares += x * x;
    const double norm = 1 / std::sqrt(squares / static_cast<double>(streams.size()) + 1e-4);
    Numbers raw;
    for (size_t row = 0; row < base.size(); ++row) {
      double product = 0;
      for (size_t i = 0; i < streams.size(); ++i) {
        product += fn[row * streams.size() + i] * streams[i] * norm;
      }
      const size_t part = row < kStreams ? 0 : row < 2 * kStreams ? 1 : 2;
      raw.push_back(product * scale[scale.size() == 1 ? 0 : part] + base[row]);
    }
    for (size_t i = 0; i < kStreams; ++i) collapse.push_back(sigmoid(raw[i]) + 1e-3);
    if (raw.size() == kStreams) return;
    for (size_t i = 0; i < kStreams; ++i) expand.push_back(2 * sigmoid(raw[kStreams + i]));
    mix.assign(raw.begin() + 2 * kStreams, raw.end());
    normalize();
  }

 private:
  void divide(size_t step, size_t other) {
    for (size_t i = 0; i < kStreams; ++i) {
      double sum = 1e-3;
      for (size_t j = 0; j < kStreams; ++j) sum += mix[i * other + j * step];
      for (size_t j = 0; j < kStreams; ++j) mix[i * other + j * step] /= sum;
    }
  }

  void normalize() {
    for (size_t i = 0; i < kStreams; ++i) {
      double sum = 0;
      for (size_t j = 0; j < kStreams; ++j) sum += std::exp(mix[i * kStreams + j]);
      for (size_t j = 0; j < kStreams; ++j) {
        mix[i * kStreams + j] = std::exp(mix[i * kStreams + j]) / sum + 1e-3;
      }
    }
    divide(kStreams, 1);  // columns
    for (int i = 1; i < 4; ++i) {
      divide(1, kStreams);
      divide(kStreams, 1);
    }
  }
};

at::Tensor some_streams() {
  return at::arange(1, 2 * 4 * kStreams * kDim + 1, at::kDouble)
      .sin()
      .view({2, 4, kStreams * kDim});
}

TEST(HyperConnection, CollapsesExpandsAndMixesByWeightsOfTheStreams) {
  nn::HyperConnection module(kOptions, at::kDouble);
  fill(module);
  const at::Tensor streams = some_streams();
  const at::Tensor result = at::arange(1, 2 * 4 * kDim + 1, at::kDouble).cos().view({2, 4, kDim});
  const nn::CollapsedStreams collapsed = module.collapse(streams);
  const at::Tensor after = module.expand(result, streams, collapsed);
  ASSERT_EQ(collapsed.input.sizes(), (at::IntArrayRef{2, 4, kDim}));
  ASSERT_EQ(after.sizes(), streams.sizes());
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t s = 0; s < 4; ++s) {
      const Numbers x = numbers_of(streams[b][s]), y = numbers_of(result[b][s]);
      const Weights weights(module, x);
      const Numbers input = numbers_of(collapsed.input[b][s]), out = numbers_of(after[b][s]);
      for (size_t d = 0; d < kDim; ++d) {
        double sum = 0;
        for (size_t i = 0; i < kStreams; ++i) sum += weights.collapse[i] * x[i * kDim + d];
        EXPECT_NEAR(input[d], sum, 1e-13);
        for (size_t j = 0; j < kStreams; ++j) {
          double mixed = weights.expand[j] * y[d];
          for (size_t i = 0; i < kStreams; ++i) {
            mixed += weights.mix[i * kStreams + j] * x[i * kDim + d];
          }
          EXPECT_NEAR(out[j * kDim + d], mixed, 1e-13);
        }
      }
    }
  }
}

TEST(HyperConnection, WeightsAreFloat32AndStreamsKeepTheirTypeInSixteenBits) {
  nn::HyperConnection module(kOptions, at::kBFloat16);
  fill(module);
  for (const at::Tensor& parameter : module.parameters()) {
    EXPECT_EQ(parameter.scalar_type(), at::kFloat);
  }
  const at::Tensor streams = some_streams().to(at::kBFloat16);
  const nn::CollapsedStreams collapsed = module.collapse(streams);
  EXPECT_EQ(collapsed.mix.scalar_type(), at::kFloat);
  EXPECT_EQ(collapsed.input.scalar_type(), at::kBFloat16);
  EXPECT_EQ(module.expand(collapsed.input, streams, collapsed).scalar_type(), at::kBFloat16);
}

TEST(DoublyStochastic, MakesRowsAndColumnsSumToOne) {
  const at::Tensor start = some_streams().narrow(2, 0, 4).reshape({2, 4, 4}).exp();
  const at::Tensor made = nn::doubly_stochastic(start, 200, 0);
  EXPECT_TRUE(at::allclose(made.sum(-1), at::ones({2, 4}, at::kDouble), 0, 1e-12));
  EXPECT_TRUE(at::allclose(made.sum(-2), at::ones({2, 4}, at::kDouble), 0, 1e-12));
  EXPECT_TRUE(at::equal(nn::doubly_stochastic(start, 1, 0), start / start.sum(-2, true)));
}

TEST(HyperHead, SumsTheStreamsByWeightsOfThem) {
  nn::HyperHead module(kOptions, at::kDouble);
  fill(module);
  const at::Tensor streams = some_streams();
  const at::Tensor out = module.forward(streams);
  for (int64_t s = 0; s < 4; ++s) {
    const Numbers x = numbers_of(streams[1][s]), found = numbers_of(out[1][s]);
    const Weights weights(module, x);
    for (size_t d = 0; d < kDim; ++d) {
      double sum = 0;
      for (size_t i = 0; i < kStreams; ++i) sum += weights.collapse[i] * x[i * kDim + d];
      EXPECT_NEAR(found[d], sum, 1e-13);
    }
  }
}

TEST(GroupedLinear, MultipliesEachGroupByItsOwnRows) {
  nn::GroupedLinear module({.num_groups = 2, .in_features = 3, .out_features = 4}, at::kDouble);
  fill(module);
  const at::Tensor x = at::arange(2 * 5 * 6, at::kDouble).sin().view({2, 5, 6});
  const at::Tensor weight = module.named_parameters()["weight"].detach();
  const at::Tensor expected = at::cat({at::matmul(x.narrow(2, 0, 3), weight.narrow(0, 0, 4).t()),
                                       at::matmul(x.narrow(2, 3, 3), weight.narrow(0, 4, 4).t())},
                                      -1);
  EXPECT_TRUE(at::allclose(module.forward(x), expected, 1e-14, 1e-14));
}

}  // namespace
}  // namespace automodel
