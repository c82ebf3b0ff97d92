#include "optim/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "support/errors.h"

namespace automodel::optim {
namespace {

ParamGroupOverride override_of(const std::string& pattern) {
  ParamGroupOverride override_;
  override_.pattern = pattern;
  override_.lr_mult = 0.5;
  return override_;
}

tensor::FlatShard shard_of(std::vector<tensor::FlatSegment> segments, int64_t numel) {
  return {"", at::zeros({numel}), std::move(segments)};
}

TEST(OptimizerTest, ARankThatHoldsPaddingOnlyHasNothingToUpdate) {
  const auto optimizer = make_adam({}, {shard_of({}, 16)}, {shard_of({}, 16)});
  optimizer->step({.lr = 1e-3});
  EXPECT_EQ(optimizer->num_steps(), 1);
  EXPECT_EQ(optimizer->state()[0].shards[0].buffer.numel(), 16);
}

std::vector<tensor::FlatShard> ones() {
  tensor::FlatShard shard = shard_of({{"a", tensor::ShardSpec::whole({2, 2}), 0}}, 4);
  shard.buffer.fill_(1);
  return {shard};
}

/// Makes an optimizer of ones with gradients of zeros, of which only weight decay changes anything.
using MakeOptimizer = std::unique_ptr<Optimizer> (*)(std::vector<tensor::FlatShard> values,
                                                     std::vector<tensor::FlatShard> gradients);
constexpr MakeOptimizer kMakers[] = {
    [](auto values, auto gradients) {
      return make_adam({.lr = 0.1, .weight_decay = 0.5, .is_decoupled = true}, std::move(values),
                       std::move(gradients));
    },
    [](auto values, auto gradients) {
      return make_adam_8bit({.lr = 0.1, .weight_decay = 0.5}, std::move(values),
                            std::move(gradients));
    },
    [](auto values, auto gradients) {
      return make_flash_adamw({.lr = 0.1, .weight_decay = 0.5}, std::move(values),
                              std::move(gradients));
    },
    [](auto values, auto gradients) {
      return make_sgd({.lr = 0.1, .weight_decay = 0.5}, std::move(values), std::move(gradients));
    }};

TEST(OptimizerTest, RatesThatAStepDoesNotGiveAreTheOptimizersOwn) {
  for (const MakeOptimizer make : kMakers) {
    const auto weight_behind = [&](const StepRates& rates) {
      const std::vector<tensor::FlatShard> values = ones();
      const auto optimizer = make(values, {shard_of(values[0].segments, 4)});
      optimizer->step(rates);
      return values[0].buffer[0].item<double>();
    };
    EXPECT_NEAR(weight_behind({}), 0.95, 1e-6);
    EXPECT_NEAR(weight_behind({.lr = 0.2}), 0.9, 1e-6);
    EXPECT_NEAR(weight_behind({.weight_decay = 0.25}), 0.975, 1e-6);
    EXPECT_NEAR(weight_behind({.lr = 0, .weight_decay = 0.5}), 1, 1e-6);
  }
}

TEST(OptimizerTest, GradientsWithoutMemoryAreAnError) {
  for (const MakeOptimizer make : kMakers) {
    const std::vector<tensor::FlatShard> values = ones();
    const tensor::FlatShard gradient = shard_of(values[0].segments, 4);
    const auto optimizer = make(values, {gradient});
    gradient.buffer.storage().unsafeGetStorageImpl()->set_nbytes(0);
    EXPECT_EQ(test::error_of<UserError>([&] { optimizer->step({}); }),
              "gradients have memory only from backward until they are set to zero: no backward "
              "has given any since");
    EXPECT_EQ(optimizer->num_steps(), 0);
  }
}

/// A pipeline's rank whose stages are frozen.
TEST(OptimizerTest, ARankThatTrainsNothingHasNothingToUpdate) {
  const auto optimizer = make_adam({}, {}, {});
  optimizer->step({.lr = 1e-3});
  EXPECT_EQ(optimizer->num_steps(), 1);
}

TEST(OptimizerTest, ARankMayHoldNoParameterThatAPatternMatches) {
  const tensor::FlatShard held = shard_of({{"b", tensor::ShardSpec::whole({4}), 0}}, 4);
  const std::vector<ParamGroupOverride> overrides = {override_of("^a$")};
  const auto runs = resolve_runs(std::vector{held}, overrides);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].lr_mult, 1.0);
}

TEST(OptimizerTest, APatternThatMatchesNoParameterOfTheModelIsRefused) {
  const std::vector<std::string> names = {"model.norm.weight", "lm_head.weight"};
  check_overrides(std::vector{override_of("norm"), override_of("lm_head")}, names);
  EXPECT_EQ(
      test::error_of<UserError>([&] { check_overrides(std::vector{override_of("bias")}, names); }),
      "optimizer.param_group_overrides: pattern 'bias' matches no parameter");
  // Only the first match counts, so the second of these has no effect.
  EXPECT_EQ(test::error_of<UserError>([&] {
              check_overrides(std::vector{override_of("norm"), override_of("model.norm")}, names);
            }),
            "optimizer.param_group_overrides: pattern 'model.norm' gets no parameter, since the "
            "first pattern that matches one takes it, and all of these match earlier ones "
            "(model.norm.weight 'norm'); put it before them");
}

/// One flat parameter of a dtype with its gradient, and FusedAdam over both.
struct Trained {
  tensor::FlatShard parameter;
  tensor::FlatShard gradient;
  std::unique_ptr<Optimizer> optimizer;

  Trained(const AdamConfig& config, const at::Tensor& values, at::ScalarType dtype) {
    const tensor::FlatSegment segment{"a", tensor::ShardSpec::whole({values.numel()}), 0};
    parameter = {"", values.to(dtype), {segment}};
    gradient = {"", at::zeros({values.numel()}, dtype), {segment}};
    optimizer = make_adam(config, {parameter}, {gradient});
  }

  void step(const at::Tensor& g, double lr) {
    gradient.buffer.copy_(g);
    optimizer->step({.lr = lr, .weight_decay = 0.1, .grad_scale = 0.5});
  }
};

AdamConfig fused_adam(MasterWeights masters) {
  AdamConfig config;
  config.is_decoupled = true;
  config.masters = masters;
  config.exp_avg_dtype = config.exp_avg_sq_dtype = at::kFloat;
  return config;
}

/// Gradients that bfloat16 holds, so that all dtypes see the same.
at::Tensor some_gradient(int64_t numel) {
  return at::randn({numel}).to(at::kBFloat16).to(at::kFloat);
}

// 600,000 elements are more than are updated at a time.
class MasterWeightsTest : public testing::TestWithParam<MasterWeights> {
 protected:
  MasterWeightsTest() { at::manual_seed(3); }
  static constexpr int64_t kNumel = 600'000;
  at::Tensor start_ = at::randn({kNumel}).to(at::kBFloat16).to(at::kFloat);
};

TEST_P(MasterWeightsTest, StepsAreThoseOfFloat32Parameters) {
  Trained in_float32(fused_adam(MasterWeights::kNone), start_, at::kFloat);
  Trained in_bfloat16(fused_adam(GetParam()), start_, at::kBFloat16);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor gradient = some_gradient(kNumel);
    in_float32.step(gradient, 1e-4);
    in_bfloat16.step(gradient, 1e-4);
  }
  const at::Tensor expected = in_float32.parameter.buffer;
  const auto& state = in_bfloat16.optimizer->state();
  ASSERT_EQ(state.size(), 3u);
  const at::Tensor kept = state[2].shards[0].buffer;
  if (GetParam() == MasterWeights::kFloat32) {
    EXPECT_EQ(state[2].name, "master_param");
    EXPECT_TRUE(at::equal(kept, expected));
    EXPECT_TRUE(at::equal(in_bfloat16.parameter.buffer, expected.to(at::kBFloat16)));
  } else {
    EXPECT_EQ(state[2].name, "param_remainder");
    EXPECT_EQ(kept.scalar_type(), at::kShort);
    const at::Tensor high = in_bfloat16.parameter.buffer.view(at::kShort).to(at::kInt);
    EXPECT_TRUE(at::equal(high * 65536 + kept, expected.view(at::kInt)));
    // Nearest, but for ties.
    EXPECT_LE((in_bfloat16.parameter.buffer.to(at::kFloat) - expected)
                  .abs()
                  .sub((expected.to(at::kBFloat16).to(at::kFloat) - expected).abs())
                  .max()
                  .item<float>(),
              0.0f);
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(at::equal(state[static_cast<size_t>(i)].shards[0].buffer,
                          in_float32.optimizer->state()[static_cast<size_t>(i)].shards[0].buffer));
  }
}

TEST_P(MasterWeightsTest, UpdatesBelowTheParametersPrecisionAddUp) {
  Trained kept(fused_adam(GetParam()), at::ones({64}), at::kBFloat16);
  Trained rounded(fused_adam(MasterWeights::kNone), at::ones({64}), at::kBFloat16);
  for (int i = 0; i < 100; ++i) {
    kept.step(at::ones({64}), 1e-4);
    rounded.step(at::ones({64}), 1e-4);
  }
  EXPECT_EQ(rounded.parameter.buffer[0].item<float>(), 1.0f);
  EXPECT_NEAR(kept.parameter.buffer[0].item<float>(), 0.9893f, 0.003f);
}

TEST_P(MasterWeightsTest, ANotANumberStaysOne) {
  Trained trained(fused_adam(GetParam()), at::ones({8}), at::kBFloat16);
  at::Tensor gradient = at::zeros({8});
  gradient[3] = std::nan("");
  // Its low bits would carry it over into a number.
  trained.optimizer->state()[0].shards[0].buffer[5].fill_(
      at::full({1}, 0x7FFFFFFF, at::kInt).view(at::kFloat)[0].item<float>());
  trained.step(gradient, 1e-4);
  trained.step(at::zeros({8}), 1e-4);
  const at::Tensor is_nan = trained.parameter.buffer.isnan();
  EXPECT_EQ(is_nan.sum().item<int64_t>(), 2);
  EXPECT_TRUE(is_nan[3].item<bool>() && is_nan[5].item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Kinds, MasterWeightsTest,
                         testing::Values(MasterWeights::kFloat32, MasterWeights::kRemainder));

TEST(OptimizerTest, Float32ParametersHaveNoMasters) {
  const Trained trained(fused_adam(MasterWeights::kFloat32), at::ones({8}), at::kFloat);
  EXPECT_EQ(trained.optimizer->state()[2].shards[0].buffer.numel(), 0);
  EXPECT_TRUE(trained.optimizer->state()[2].shards[0].segments.empty());
}

TEST(OptimizerTest, BytesOfStateAreThoseThatAreAllocated) {
  for (const auto masters :
       {MasterWeights::kNone, MasterWeights::kFloat32, MasterWeights::kRemainder}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      AdamConfig config = fused_adam(masters);
      config.exp_avg_sq_dtype = std::nullopt;
      const Trained trained(config, at::ones({8}), dtype);
      size_t bytes = 0;
      for (const OptimizerState& state : trained.optimizer->state()) {
        bytes += state.shards[0].buffer.nbytes();
      }
      EXPECT_EQ(static_cast<int64_t>(bytes), 8 * adam_state_bytes(config, dtype));
    }
  }
}

TEST(OptimizerTest, WithoutBiasCorrectionTheFirstStepIsSmall) {
  AdamConfig config;
  config.is_bias_corrected = false;
  Trained trained(config, at::ones({4}), at::kFloat);
  trained.gradient.buffer.fill_(2.0);
  trained.optimizer->step({.lr = 1.0});
  // m = 0.1 * 2, v = 0.001 * 4
  EXPECT_NEAR(trained.parameter.buffer[0].item<float>(), 1 - 0.2 / std::sqrt(0.004), 1e-5);
}

}  // namespace
}  // namespace automodel::optim
