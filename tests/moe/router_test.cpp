#include "moe/router.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"

namespace automodel::moe {
namespace {

/// A router with memory, whose logits are its inputs: D = E and the weight is the identity.
std::shared_ptr<Router> identity_router(MoEConfig config) {
  at::set_num_threads(1);
  config.dim = config.n_routed_experts;
  auto router = std::make_shared<Router>(config, "layer 3", at::kFloat);
  for (const auto& item : router->named_parameters()) {
    at::Tensor parameter = item.value();
    parameter.set_data(at::zeros(parameter.sizes(), parameter.options()));
  }
  router->named_parameters()["weight"].detach().copy_(at::eye(config.dim));
  return router;
}

MoEConfig four_experts(ScoreFunction function, int64_t chosen = 2) {
  MoEConfig config;
  config.n_routed_experts = 4;
  config.n_activated_experts = chosen;
  config.score_func = function;
  return config;
}

at::Tensor rows(std::vector<float> values, int64_t width) {
  return at::tensor(values).view({-1, width});
}

void expect_close(const at::Tensor& ours, const at::Tensor& expected) {
  EXPECT_TRUE(at::allclose(ours, expected, 1e-6, 1e-7)) << ours << expected;
}

TEST(Router, SoftmaxOverTheChosenLogits) {
  const auto router = identity_router(four_experts(ScoreFunction::kSoftmax));
  const Routing routing = router->forward(rows({0, 2, 1, -1}, 4), {});
  EXPECT_TRUE(routing.expert_ids.equal(at::tensor({1, 2}, at::kLong).view({1, 2})));
  expect_close(routing.weights, rows({2, 1}, 2).softmax(-1));
}

TEST(Router, SoftmaxBeforeTopkTakesScoresAsTheyAre) {
  MoEConfig config = four_experts(ScoreFunction::kSoftmax);
  config.softmax_before_topk = true;
  const at::Tensor logits = rows({0, 2, 1, -1}, 4);
  expect_close(identity_router(config)->forward(logits, {}).weights,
               logits.softmax(-1).slice(1, 1, 3));
  config.norm_topk_prob = true;
  expect_close(identity_router(config)->forward(logits, {}).weights, rows({2, 1}, 2).softmax(-1));
}

TEST(Router, ASingleChosenExpertWeighsOneWhereChosenScoresSumToOne) {
  MoEConfig config = four_experts(ScoreFunction::kSigmoid, 1);
  const at::Tensor logits = rows({0, 2, 1, -1}, 4);
  expect_close(identity_router(config)->forward(logits, {}).weights, at::sigmoid(rows({2}, 1)));
  config.norm_topk_prob = true;
  expect_close(identity_router(config)->forward(logits, {}).weights, rows({1}, 1));
}

TEST(Router, CorrectionChoosesButDoesNotWeigh) {
  MoEConfig config = four_experts(ScoreFunction::kSigmoid, 1);
  config.has_correction_bias = true;
  config.route_scale = 2.5;
  const auto router = identity_router(config);
  router->named_parameters()["e_score_correction_bias"].copy_(at::tensor({0.0F, 0.0F, 0.0F, 1.0F}));
  const Routing routing = router->forward(rows({3, 0, 0, -1}, 4), {});
  EXPECT_EQ(routing.expert_ids.item<int64_t>(), 3);
  expect_close(routing.weights, at::sigmoid(rows({-1}, 1)) * 2.5);
}

TEST(Router, GroupsAreRankedByTheirTwoBestExperts) {
  MoEConfig config = four_experts(ScoreFunction::kSigmoid, 2);
  config.has_correction_bias = true;
  config.n_expert_groups = 2;
  config.n_limited_groups = 1;
  // The best single expert is in the first group, the better pair in the second.
  const Routing routing = identity_router(config)->forward(rows({2, -9, 1, 1.5}, 4), {});
  EXPECT_TRUE(routing.expert_ids.equal(at::tensor({3, 2}, at::kLong).view({1, 2})));
}

TEST(Router, SqrtSoftplusScores) {
  const at::Tensor logits = rows({0, 2, 1, -1}, 4);
  const Routing routing =
      identity_router(four_experts(ScoreFunction::kSqrtSoftplus))->forward(logits, {});
  expect_close(routing.weights, (1 + logits.exp()).log().sqrt().slice(1, 1, 3));
}

TEST(Router, FakeBalancedGateGoesRound) {
  MoEConfig config = four_experts(ScoreFunction::kSoftmax);
  config.fake_balanced_gate = true;
  const Routing routing = identity_router(config)->forward(at::zeros({3, 4}), {});
  EXPECT_TRUE(routing.expert_ids.equal(at::tensor({0, 1, 2, 3, 0, 1}, at::kLong).view({3, 2})));
  EXPECT_EQ(routing.weights.min().item<float>(), 0.5F);
}

TEST(Router, CountsTokensOfTrainingForwardsOnce) {
  const auto router = identity_router(four_experts(ScoreFunction::kSoftmax, 1));
  const at::Tensor x = rows({9, 0, 0, 0, 9, 0, 0, 0, 0, 0, 9, 0}, 4);
  const at::Tensor is_padding = at::tensor({0, 1, 0}).to(at::kBool);
  router->forward(x, is_padding);
  {
    const at::NoGradGuard no_grad;  // as the first pass of a block that is computed again
    router->forward(x, is_padding);
  }
  EXPECT_TRUE(router->take_load().equal(at::tensor({1.0F, 0.0F, 1.0F, 0.0F})));
  EXPECT_TRUE(router->take_load().equal(at::zeros({4})));
  router->eval();
  router->forward(x, {});
  EXPECT_TRUE(router->take_load().equal(at::zeros({4})));
}

TEST(Router, AuxLossOfEvenLoadIsOne) {
  const at::Tensor scores = at::full({8, 4}, 0.25);
  EXPECT_DOUBLE_EQ(aux_loss(scores, at::full({4}, 4.0), {}, 2).item<double>(), 1.0);
}

TEST(Router, AuxLossLeavesPaddingOut) {
  const at::Tensor scores = rows({0.5, 0.5, 0.9, 0.1}, 2);
  const at::Tensor is_counted = at::tensor({1, 0}).to(at::kBool);
  EXPECT_FLOAT_EQ(aux_loss(scores, rows({1, 0}, 2)[0], is_counted, 1).item<float>(), 1.0F);
}

TEST(Router, AuxLossPushesScoresOfCrowdedExpertsDown) {
  MoEConfig config = four_experts(ScoreFunction::kSoftmax, 1);
  config.softmax_before_topk = true;
  config.aux_loss_coeff = 0.5;
  const auto router = identity_router(config);
  router->set_aux_loss_scale(0.25);
  const at::Tensor x = at::randn({16, 4}, at::TensorOptions()).add_(rows({3, 0, 0, 0}, 4));
  x.requires_grad_();
  const Routing routing = router->forward(x, {});
  (routing.weights * 0).sum().backward();  // only the aux loss is left
  const at::Tensor ours = x.grad().clone();
  const at::Tensor leaf = x.detach().requires_grad_();
  const at::Tensor load = at::bincount(routing.expert_ids.flatten(), {}, 4);
  (aux_loss(leaf.softmax(-1), load, {}, 1) * (0.5 * 0.25)).backward();
  EXPECT_TRUE(at::allclose(ours, leaf.grad(), 1e-5, 1e-8));
  EXPECT_GT(ours.abs().max().item<float>(), 0.0F);
  EXPECT_GT(router->take_aux_loss().item<double>(), 1.0);
}

TEST(Router, LogitsThatAreNotFiniteAreAnError) {
  const auto router = identity_router(four_experts(ScoreFunction::kSoftmax));
  const at::Tensor x = at::full({2, 4}, std::numeric_limits<float>::quiet_NaN());
  try {
    router->forward(x, {});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "the router of layer 3 computed logits that are not finite: the hidden states or "
                 "the router's weights have diverged");
    EXPECT_EQ(error.code(), ExitCode::kNonFinite);
  }
}

/// Their sum is no number of float16.
TEST(Router, ManyLogitsOfFloat16AreFinite) {
  const auto router = identity_router(four_experts(ScoreFunction::kSoftmax));
  router->to(at::kHalf);
  const at::Tensor x = at::full({2048, 4}, 60, at::TensorOptions().dtype(at::kHalf));
  EXPECT_EQ(router->forward(x, {}).weights.size(0), 2048);
}

std::shared_ptr<Router> hashed_router(std::vector<int64_t> table) {
  MoEConfig config = four_experts(ScoreFunction::kSqrtSoftplus);
  config.num_hashed_tokens = 3;
  config.norm_topk_prob = true;
  const auto router = identity_router(config);
  router->named_parameters()["tid2eid"].detach().copy_(at::tensor(table, at::kLong).view({3, 2}));
  return router;
}

TEST(Router, ATableOfTokenIdsChoosesAndScoresWeigh) {
  const auto router = hashed_router({0, 1, 2, 3, 3, 1});
  EXPECT_FALSE(router->named_parameters()["tid2eid"].requires_grad());
  const at::Tensor logits = rows({0, 2, 1, -1, 4, 3, 2, 1}, 4);
  const Routing routing = router->forward(logits, {}, at::tensor({2, 0}, at::kLong));
  EXPECT_TRUE(at::equal(routing.expert_ids, at::tensor({3, 1, 0, 1}, at::kLong).view({2, 2})));
  const at::Tensor scores = at::log1p(logits.exp()).sqrt();
  const at::Tensor chosen = scores.gather(1, routing.expert_ids);
  expect_close(routing.weights, chosen / chosen.sum(1, true));
}

TEST(Router, ATableThatNamesNoExpertIsRefused) {
  const auto router = hashed_router({0, 1, 2, 4, 3, 1});
  try {
    router->forward(rows({0, 2, 1, -1}, 4), {}, at::tensor({1}, at::kLong));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "the table of experts (tid2eid) of layer 3 names expert 4; there are 4");
  }
}

}  // namespace
}  // namespace automodel::moe
