#include "optim/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

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

TEST(OptimizerTest, NothingTrainedAtAllIsRefused) {
  EXPECT_EQ(test::error_of<UserError>([] { make_adam({}, {}, {}); }),
            "optimizer received no trainable parameters");
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
            "optimizer.param_group_overrides: pattern 'model.norm' matches no parameter");
}

}  // namespace
}  // namespace automodel::optim
