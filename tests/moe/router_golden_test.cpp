// Routers against upstream's Gate (scripts/goldens/make_router_goldens.py).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "core/json.h"
#include "core/text.h"
#include "moe/load_balance.h"
#include "moe/router.h"
#include "support/program.h"

namespace automodel::moe {
namespace {

constexpr double kAuxLossCoefficient = 0.5;

struct GoldenCase {
  std::string name;
  Json options;
};

std::vector<GoldenCase> golden_cases() {
  const Json all = Json::parse_file(test::source_file("tests/moe/data/routers.json"));
  std::vector<GoldenCase> cases;
  for (const auto& [name, options] : all.as_object()) cases.push_back({name, options});
  return cases;
}

ScoreFunction score_function(const std::string& name) {
  if (name == "softmax") return ScoreFunction::kSoftmax;
  if (name == "softmax_with_bias") return ScoreFunction::kSoftmaxWithBias;
  if (name == "sigmoid") return ScoreFunction::kSigmoid;
  if (name == "sigmoid_with_bias") return ScoreFunction::kSigmoidWithBias;
  return ScoreFunction::kSqrtSoftplus;
}

MoEConfig config_of(const Json& options) {
  const auto flag = [&](const char* key) {
    return options.contains(key) && options.at(key).as_bool();
  };
  const auto number = [&](const char* key, int64_t otherwise) {
    return options.contains(key) ? options.at(key).as_int() : otherwise;
  };
  MoEConfig config;
  config.dim = 12;
  config.n_routed_experts = 8;
  config.n_activated_experts = number("n_activated_experts", 2);
  config.n_expert_groups = number("n_expert_groups", 1);
  config.n_limited_groups = number("n_limited_groups", 1);
  config.score_func = score_function(options.at("score_func").as_string());
  config.softmax_before_topk = flag("softmax_before_topk");
  config.norm_topk_prob = flag("norm_topk_prob");
  config.router_bias = flag("router_bias");
  config.router_weight_uses_score_correction_bias =
      flag("router_weight_uses_score_correction_bias");
  config.has_correction_bias = flag("corrected");
  config.gate_bias_update_factor = config.has_correction_bias ? 1e-2 : 0;
  if (options.contains("route_scale")) config.route_scale = options.at("route_scale").as_double();
  config.aux_loss_coeff = kAuxLossCoefficient;
  return config;
}

class RouterGoldenTest : public testing::TestWithParam<GoldenCase> {
 protected:
  at::Tensor golden(const std::string& key) { return file_.read(cat(GetParam().name, "/", key)); }

  void expect_near(const at::Tensor& ours, const std::string& key) {
    const at::Tensor wanted = golden(key);
    EXPECT_LE((ours - wanted).norm().item<double>(), 1e-5 * wanted.norm().item<double>() + 1e-7)
        << key;
  }

  checkpoint::SafetensorsFile file_{test::source_file("tests/moe/data/routers.safetensors")};
};

TEST_P(RouterGoldenTest, IsUpstreamsGate) {
  torch::nn::Module model;
  const MoEConfig config = config_of(GetParam().options);
  const auto router =
      model.register_module("router", std::make_shared<Router>(config, "layer 0", at::kFloat));
  const auto set = [&](const std::string& parameter, const std::string& key) {
    at::Tensor value = router->named_parameters()[parameter];
    value.set_data(golden(key));
  };
  set("weight", "weight");
  if (config.router_bias) set("bias", "bias");
  if (config.has_correction_bias) set("e_score_correction_bias", "correction");
  router->set_aux_loss_scale(1);
  const at::Tensor x = golden("x").requires_grad_();
  const at::Tensor is_token = golden("is_token");
  const Routing routing = router->forward(x, is_token.logical_not());
  const at::Tensor is_chosen = routing.expert_ids.ge(0);
  const at::Tensor by_expert =
      at::zeros({x.size(0), config.n_routed_experts})
          .scatter_add(1, routing.expert_ids.clamp_min(0), routing.weights * is_chosen);
  (by_expert * golden("probe")).sum().backward();
  expect_near(by_expert, "by_expert");
  expect_near(x.grad(), "grad.x");
  expect_near(router->named_parameters()["weight"].grad(), "grad.weight");

  tensor::KeyMap keys;
  std::vector<tensor::FlatShard> shards;
  if (config.has_correction_bias) {
    const at::Tensor correction = router->named_parameters()["e_score_correction_bias"];
    keys = {{"correction", "router.e_score_correction_bias", 0, {config.n_routed_experts}}};
    shards = {
        {"", correction, {{"correction", tensor::ShardSpec::whole({config.n_routed_experts}), 0}}}};
  }
  const auto routers = routers_of(model, keys);
  const auto loads = take_loads(routers, [](const at::Tensor&) {});
  expect_near(loads[0].load, "load");
  expect_near(at::tensor({static_cast<float>(loads[0].aux_loss)}), "aux_loss");
  EXPECT_EQ(update_correction_biases(routers, loads, shards), config.has_correction_bias);
  if (config.has_correction_bias) expect_near(shards[0].buffer, "correction after");
}

INSTANTIATE_TEST_SUITE_P(Upstream, RouterGoldenTest, testing::ValuesIn(golden_cases()),
                         [](const testing::TestParamInfo<GoldenCase>& info) {
                           std::string name = info.param.name;
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace automodel::moe
