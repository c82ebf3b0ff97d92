#include "tensor/random.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace automodel::tensor {
namespace {

at::Tensor draw(const ShardSpec& spec, const InitRule& rule, const RandomKey& key) {
  at::Tensor out = at::empty({spec.numel()});
  fill_initial_values(out, spec, rule, key);
  return out;
}

TEST(RandomTest, PhiloxGivesThePublishedNumbers) {
  // Random123's known answers for philox4x32-10: counter and key all zero, first word 0x6627e8d5.
  const float first = random_uniform(RandomKey(0, uint64_t{0}), 0);
  EXPECT_EQ(first, static_cast<float>(0x6627e8d5u >> 8) * 0x1p-24f);
}

TEST(RandomTest, SlicesOfATensorAreTheTensor) {
  const RandomKey key(7, "model.embed_tokens.weight");
  const InitRule rule = InitRule::normal(0, 0.02);
  const ShardSpec whole = ShardSpec::whole({13, 5});
  std::vector<at::Tensor> pieces;
  for (int64_t begin = 0; begin < 65; begin += 17) {
    ShardSpec piece = whole;
    piece.flat_begin = begin;
    piece.flat_end = std::min<int64_t>(65, begin + 17);
    pieces.push_back(draw(piece, rule, key));
  }
  EXPECT_TRUE(at::equal(at::cat(pieces), draw(whole, rule, key)));
}

TEST(RandomTest, NormalNumbersHaveTheirMoments) {
  const at::Tensor x =
      draw(ShardSpec::whole({400000}), InitRule::normal(1.0, 2.0), RandomKey(1, "x"));
  EXPECT_NEAR(x.mean().item<double>(), 1.0, 0.02);
  EXPECT_NEAR(x.std().item<double>(), 2.0, 0.02);
}

TEST(RandomTest, RulesOfStatesHaveTheirDistributions) {
  const RandomKey key(3, "A_log");
  const auto drawn = [&](InitRule::Kind kind, double a, double b, double cut) {
    at::Tensor values = at::empty({4000});
    fill_initial_values(values, ShardSpec::whole({4000}), {kind, a, b, cut}, key);
    return values.to(at::kDouble);
  };
  const at::Tensor uniform = drawn(InitRule::Kind::kLogUniform, 0.5, 16, 0).exp();
  EXPECT_GE(uniform.min().item<double>(), 0.5 - 1e-6);
  EXPECT_LE(uniform.max().item<double>(), 16 + 1e-5);
  EXPECT_NEAR(uniform.mean().item<double>(), 8.25, 0.3);
  const at::Tensor counted = drawn(InitRule::Kind::kLogCount, 0, 0, 0).exp();
  EXPECT_NEAR(counted[0].item<double>(), 1, 1e-6);
  EXPECT_NEAR(counted[3999].item<double>(), 4000, 1e-2);
  const at::Tensor steps = at::softplus(drawn(InitRule::Kind::kSoftplusOf, 0.001, 0.1, 0.002));
  EXPECT_NEAR(steps.min().item<double>(), 0.002, 1e-8);
  EXPECT_LE(steps.max().item<double>(), 0.1 + 1e-7);
  EXPECT_NEAR(steps.log().max().item<double>(), std::log(0.1), 0.01);
}

TEST(RandomTest, TruncatedNormalNumbersStayInside) {
  InitRule rule = InitRule::normal(0, 0.02);
  rule.kind = InitRule::Kind::kTruncatedNormal;
  rule.cut = 0.04;
  const at::Tensor x = draw(ShardSpec::whole({100000}), rule, RandomKey(1, "x"));
  EXPECT_LE(x.abs().max().item<double>(), 0.04);
  EXPECT_NEAR(x.std().item<double>(), 0.0176, 0.0005);
}

TEST(RandomTest, ThePaddingRowIsZero) {
  InitRule rule = InitRule::normal(0, 1);
  rule.zero_row = 2;
  const at::Tensor x = draw(ShardSpec::whole({4, 8}), rule, RandomKey(1, "x")).view({4, 8});
  EXPECT_EQ(x[2].abs().sum().item<double>(), 0.0);
  EXPECT_NE(x[1].abs().sum().item<double>(), 0.0);
}

TEST(RandomTest, NumbersOfAStreamAreTheSameInEveryVersion) {
  const RandomKey key(42, "model.layers.0.x");
  ShardSpec piece = ShardSpec::whole({8});
  piece.flat_begin = 1;
  piece.flat_end = 7;
  const auto expect = [&](const InitRule& rule, const std::vector<float>& wanted) {
    EXPECT_TRUE(at::equal(draw(piece, rule, key), at::tensor(wanted)));
  };
  using Kind = InitRule::Kind;
  expect({Kind::kNormal, 0, 1},
         {0.171167523F, -0.928345382F, 0.562928259F, 0.69809407F, 1.58655977F, 0.144495755F});
  expect({Kind::kTruncatedNormal, 0, 1, 0.5},
         {0.171167523F, 0.220038638F, -0.392251343F, -0.0100683356F, 0.18116565F, 0.144495755F});
  expect({Kind::kUniform, -1, 1}, {-0.0441374779F, 0.109367967F, -0.173509479F, -0.554744244F,
                                   -0.631942987F, 0.0076687336F});
}

TEST(RandomTest, DifferentNamesGiveDifferentNumbers) {
  const ShardSpec spec = ShardSpec::whole({16});
  const InitRule rule = InitRule::normal(0, 1);
  EXPECT_FALSE(at::equal(draw(spec, rule, RandomKey(1, "a")), draw(spec, rule, RandomKey(1, "b"))));
}

TEST(RandomTest, DropoutKeepsTheExpectation) {
  const at::Tensor is_kept = dropout_kept(RandomKey(3, "site"), 0, 200000, 0.25);
  EXPECT_NEAR(is_kept.to(at::kDouble).mean().item<double>(), 0.75, 0.005);
  EXPECT_TRUE(
      at::equal(is_kept.slice(0, 1000, 1100), dropout_kept(RandomKey(3, "site"), 1000, 100, 0.25)));
}

TEST(RandomTest, DropoutIsDrawnElementByElement) {
  const RandomKey key(3, "site");
  const at::Tensor is_kept = dropout_kept(key, 5, 30, 0.25);
  for (int64_t i = 0; i < 30; ++i) {
    const bool is_dropped = random_uniform(key, 5 + static_cast<uint64_t>(i)) < 0.25f;
    EXPECT_EQ(is_kept[i].item<bool>(), !is_dropped) << i;
  }
}

}  // namespace
}  // namespace automodel::tensor
