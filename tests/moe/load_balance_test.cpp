#include "moe/load_balance.h"
#include "moe/router.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "moe/load_metrics.h"

namespace automodel::moe {
namespace {

std::map<std::string, double> metrics_of(const std::vector<LayerLoad>& loads,
                                         const LoadMetricsOptions& options = {}) {
  const auto list = load_metrics(loads, options);
  return {list.begin(), list.end()};
}

TEST(LoadMetrics, EvenLoadIsOneEverywhere) {
  const auto metrics = metrics_of({{"layer 0", at::full({4}, 5.0), 1.0}});
  EXPECT_EQ(metrics.at("moe/cv_mean"), 0.0);
  EXPECT_EQ(metrics.at("moe/expert_utilization_min"), 1.0);
  EXPECT_EQ(metrics.at("moe/expert_utilization_max"), 1.0);
  EXPECT_NEAR(metrics.at("moe/expert_diversity_mean"), 1.0, 1e-12);
  EXPECT_EQ(metrics.at("moe/aux_loss_mean"), 1.0);
  EXPECT_EQ(metrics.size(), 13u);
}

TEST(LoadMetrics, FollowTheFormulas) {
  const auto metrics = metrics_of({{"layer 0", at::tensor({6.0F, 2.0F, 0.0F, 0.0F}), 0.5},
                                   {"layer 1", at::tensor({2.0F, 2.0F, 2.0F, 2.0F}), 1.5}});
  // Deviations 4, 0, -2, -2 of the mean 2: sqrt(24 / 3) / 2.
  EXPECT_NEAR(metrics.at("moe/cv_max"), std::sqrt(8.0) / 2, 1e-12);
  EXPECT_NEAR(metrics.at("moe/cv_median"), std::sqrt(8.0) / 4, 1e-12);
  EXPECT_EQ(metrics.at("moe/aux_loss_mean"), 1.0);
  // Sorted: 0 0 1 1 1 1 1 3.
  EXPECT_EQ(metrics.at("moe/expert_utilization_p25"), 1.0);
  EXPECT_EQ(metrics.at("moe/expert_utilization_p75"), 1.0);
  EXPECT_EQ(metrics.at("moe/expert_utilization_max"), 3.0);
  EXPECT_EQ(metrics.at("moe/dead_expert_frac_mean"), 0.25);
  const double entropy = -(0.75 * std::log(0.75) + 0.25 * std::log(0.25));
  EXPECT_NEAR(metrics.at("moe/expert_diversity_min"), std::exp(entropy) / 4, 1e-12);
}

TEST(LoadMetrics, NoTokensGiveZeros) {
  for (const auto& [name, value] : metrics_of({{"layer 0", at::zeros({4}), 0.0}})) {
    EXPECT_EQ(value, 0.0) << name;
  }
  EXPECT_TRUE(load_metrics({}, {}).empty());
}

TEST(LoadMetrics, DetailsAndExtremesOfEachLayer) {
  const auto metrics = metrics_of({{"layer 7", at::tensor({1.0F, 5.0F, 2.0F, 4.0F}), 0.25}},
                                  {.is_detailed = true, .top_k_experts = 1});
  EXPECT_EQ(metrics.at("moe/layer_7/aux_loss"), 0.25);
  EXPECT_EQ(metrics.at("moe/layer_7/utilization_mean"), 1.0);
  EXPECT_NEAR(metrics.at("moe_expert_utilization/layer_7_expert_1"), 5.0 / 3, 1e-12);
  EXPECT_NEAR(metrics.at("moe_expert_utilization/layer_7_expert_0"), 1.0 / 3, 1e-12);
  EXPECT_EQ(metrics.count("moe_expert_utilization/layer_7_expert_2"), 0u);
}

/// A router whose correction is spread over two shards, of which this rank holds one.
TEST(CorrectionBias, MovesTowardsEvenLoadOnTheSliceHeldHere) {
  MoEConfig config;
  config.dim = 4;
  config.n_routed_experts = 4;
  config.n_activated_experts = 1;
  config.has_correction_bias = true;
  config.gate_bias_update_factor = 0.125;
  torch::nn::Module model;
  const auto mlp = model.register_module("mlp", std::make_shared<torch::nn::Module>());
  mlp->register_module("router", std::make_shared<Router>(config, "layer 0", at::kFloat));
  const tensor::KeyMap keys = {
      {"mlp.gate.e_score_correction_bias", "mlp.router.e_score_correction_bias", 0, {4}}};
  tensor::FlatShard shard;
  shard.buffer = at::zeros({3});
  tensor::ShardSpec spec = tensor::ShardSpec::whole({4});
  spec.flat_begin = 1;
  spec.flat_end = 4;
  shard.segments = {{"mlp.gate.e_score_correction_bias", spec, 0}};
  const std::vector<LayerLoad> loads = {{"layer 0", at::tensor({9.0F, 3.0F, 4.0F, 0.0F}), 0.0}};
  EXPECT_TRUE(update_correction_biases(routers_of(model, keys), loads, {shard}));
  EXPECT_TRUE(shard.buffer.equal(at::tensor({0.125F, 0.0F, 0.125F})));
}

TEST(CorrectionBias, StaysWithoutAFactor) {
  MoEConfig config;
  config.dim = 4;
  config.n_routed_experts = 4;
  config.has_correction_bias = true;
  torch::nn::Module mlp;
  mlp.register_module("router", std::make_shared<Router>(config, "layer 0", at::kFloat));
  EXPECT_FALSE(
      update_correction_biases(routers_of(mlp, {}), {{"layer 0", at::ones({4}), 0.0}}, {}));
}

}  // namespace
}  // namespace automodel::moe
