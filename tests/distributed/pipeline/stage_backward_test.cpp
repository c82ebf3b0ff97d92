#include "distributed/autograd/stage_backward.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <optional>

#include "distributed/pipeline/staged_model.h"
#include "distributed/recompute/recompute.h"

namespace automodel::distributed {
namespace {

constexpr const char* kFamilies[] = {"llama_default", "qwen3_tied",   "gemma2", "gpt2",    "olmo2",
                                     "granite",       "phi3_default", "olmo",   "gpt_neox"};

/// A stage's graph from a leaf, and the gradient that comes back from behind.
struct StageRun {
  StagedModel stage;
  StageGraph graph;

  StageRun(const Json& config, const std::vector<std::string>& modules)
      : stage(config, modules, comm::ProcessGroup::solo()) {
    stage.engine().keep_gradients();
    const tensor::Batch batch = microbatches_of(stage.model().dims().vocab_size, 1)[0];
    const bool is_first = modules[0] == "model.embed_tokens";
    const bool is_last = modules.back() == "lm_head";
    const auto options = at::TensorOptions().dtype(at::kFloat);
    if (!is_first) {
      graph.input = at::linspace(-1, 1, 20 * stage.model().dims().hidden_size, options)
                        .sin()
                        .view(stage.hidden_sizes(batch))
                        .requires_grad_();
    }
    graph.output = stage.run(batch, 0, graph.input);
    if (is_last) {
      graph.output = stage.loss(batch, 0, graph.output);
    } else {
      graph.output_gradient =
          at::linspace(0, 3, graph.output.numel(), options).cos().view(graph.output.sizes());
    }
  }
};

void expect_split_is_full(const Json& config, const std::vector<std::string>& modules) {
  StageRun full(config, modules);
  const at::Tensor wanted = stage_backward(full.graph);
  const auto wanted_gradients = gradients_of(full.stage.engine());

  StageRun split(config, modules);
  auto [gradient, rest] = stage_backward_input(split.graph);
  split.graph = {};
  for (const auto& [name, value] : gradients_of(split.stage.engine())) {
    EXPECT_EQ(value.abs().sum().item<float>(), 0) << name << " before its turn";
  }
  rest.run();
  ASSERT_EQ(gradient.defined(), wanted.defined());
  if (wanted.defined()) {
    EXPECT_TRUE(at::allclose(gradient, wanted, 1e-6, 1e-7));
  }
  const auto gradients = gradients_of(split.stage.engine());
  ASSERT_EQ(gradients.size(), wanted_gradients.size());
  for (const auto& [name, value] : wanted_gradients) {
    EXPECT_GT(value.abs().sum().item<float>(), 0) << name;
    EXPECT_TRUE(at::allclose(gradients.at(name), value, 1e-6, 1e-7)) << name;
  }
}

/// First the input's gradient and no others, then the parameters': what a whole backward gives.
TEST(StageBackwardTest, InputAndWeightBackwardsTogetherAreTheWholeOne) {
  at::set_num_threads(1);
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    const Json config = untied_config(family, 3);
    const auto stages =
        split_into_stages(models::build_causal_lm(config, at::kFloat)->parallel_plan(), 3);
    for (const std::vector<std::string>& modules : stages) {
      SCOPED_TRACE(modules[0]);
      expect_split_is_full(config, modules);
    }
  }
}

/// Calls of an operation on this thread while a body runs.
int64_t count_calls(const std::string& operation, const std::function<void()>& body) {
  static thread_local int64_t count;  // callbacks carry no state of their own
  static thread_local std::string wanted;
  count = 0;
  wanted = operation;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction& called) -> std::unique_ptr<at::ObserverContext> {
        if (called.name() == wanted) count += 1;
        return nullptr;
      }));
  body();
  at::removeCallback(handle);
  return count;
}

TEST(StageBackwardTest, NoProductIsComputedTwice) {
  at::set_num_threads(1);
  const Json config = untied_config("llama_default", 3);
  const std::vector<std::string> modules = {"model.layers.1"};
  StageRun full(config, modules);
  const int64_t wanted = count_calls("automodel::product", [&] { stage_backward(full.graph); });
  EXPECT_EQ(wanted, 2 * 4);  // qkv, output, gate and up, down: two gradients each
  StageRun split(config, modules);
  std::optional<WeightBackward> rest;
  const int64_t of_input = count_calls(
      "automodel::product", [&] { rest = std::move(stage_backward_input(split.graph).second); });
  const int64_t of_weights = count_calls("automodel::product", [&] { rest->run(); });
  EXPECT_EQ(of_input, wanted / 2);
  EXPECT_EQ(of_weights, wanted / 2);
}

/// A module's gradients by a whole backward, then by one in two parts; the input's comes first.
std::vector<std::vector<at::Tensor>> gradients_of_both(
    torch::nn::Module& module, const std::function<at::Tensor(const at::Tensor&)>& forward) {
  std::vector<std::vector<at::Tensor>> both;
  for (const bool is_split : {false, true}) {
    StageGraph graph;
    graph.input = at::linspace(-1, 1, 12).view({3, 4}).requires_grad_();
    graph.output = forward(graph.input);
    graph.output_gradient = at::linspace(0, 3, 12).cos().view({3, 4});
    std::vector<at::Tensor> gradients;
    if (is_split) {
      auto [gradient, rest] = stage_backward_input(graph);
      graph = {};
      for (const at::Tensor& parameter : module.parameters()) {
        EXPECT_FALSE(parameter.grad().defined()) << "before its turn";
      }
      rest.run();
      gradients.push_back(gradient);
    } else {
      gradients.push_back(stage_backward(graph));
    }
    for (at::Tensor& parameter : module.parameters()) {
      gradients.push_back(parameter.grad());
      parameter.mutable_grad().reset();
    }
    both.push_back(std::move(gradients));
  }
  return both;
}

void expect_split_is_full(torch::nn::Module& module,
                          const std::function<at::Tensor(const at::Tensor&)>& forward) {
  const auto both = gradients_of_both(module, forward);
  ASSERT_EQ(both[0].size(), both[1].size());
  for (size_t i = 0; i < both[0].size(); ++i) {
    EXPECT_GT(both[0][i].abs().sum().item<float>(), 0) << i;
    EXPECT_TRUE(at::allclose(both[1][i], both[0][i], 1e-6, 1e-7)) << i;
  }
}

/// The way from a module's second run to the input goes through its first, at once or by what lies
/// between.
TEST(StageBackwardTest, AModuleMayRunTwiceInAStage) {
  at::manual_seed(1);
  torch::nn::Linear linear(4, 4);
  expect_split_is_full(
      *linear, [&](const at::Tensor& input) { return linear(linear(input).tanh()).tanh(); });
  expect_split_is_full(*linear,
                       [&](const at::Tensor& input) { return linear(linear(input)).tanh(); });
}

TEST(StageBackwardTest, WhatIsMadeOfAParameterOnceMayBeUsedTwice) {
  at::manual_seed(1);
  torch::nn::Linear linear(torch::nn::LinearOptions(4, 4).bias(false));
  expect_split_is_full(*linear, [&](const at::Tensor& input) {
    const at::Tensor weight = linear->weight.square();
    return input.matmul(weight).tanh().matmul(weight);
  });
}

/// Recomputed blocks hide their parameters: their gradients come with the input's.
TEST(StageBackwardTest, RecomputedBlocksAreWholeInTheInputsBackward) {
  at::set_num_threads(1);
  const Json config = untied_config("llama_default", 3);
  const std::vector<std::string> modules = {"model.layers.1"};
  StageRun plain(config, modules);
  const at::Tensor wanted = stage_backward(plain.graph);

  StageRun run(config, modules);
  recompute_blocks(run.stage.model(), run.stage.model().parallel_plan(),
                   ActivationCheckpointingMode::kFull);
  const tensor::Batch batch = microbatches_of(run.stage.model().dims().vocab_size, 1)[0];
  run.graph.output = run.stage.run(batch, 0, run.graph.input);
  auto [gradient, rest] = stage_backward_input(run.graph);
  rest.run();
  EXPECT_TRUE(at::allclose(gradient, wanted, 1e-6, 1e-7));
  for (const auto& [name, value] : gradients_of(plain.stage.engine())) {
    EXPECT_TRUE(at::allclose(gradients_of(run.stage.engine()).at(name), value, 1e-6, 1e-7)) << name;
  }
}

}  // namespace
}  // namespace automodel::distributed
