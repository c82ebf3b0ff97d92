// Gradients that are not finite: what check_for_nan_in_grad and report_nan_in_param_grad stop.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "comm/ranks.h"
#include "distributed/fsdp/gradient_check.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "distributed/toy_model.h"
#include "support/errors.h"
#include "training/train_step.h"

namespace automodel::distributed {
namespace {

using comm::expect;
using comm::expect_ranks;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Zero, with the gradient `value` (NaN, infinity or 0) for every element of w.
at::Tensor poison(const at::Tensor& w, double value) {
  if (std::isfinite(value)) return w.sum() * 0;
  const at::Tensor zero = std::isnan(value) ? (w * 0).sum() : (w - w.detach()).sum();
  return at::sqrt(zero);
}

/// What a step says when the gradient of the root's parameter is `value` on one of the ranks; the
/// loss is finite and the recipe does not stop by itself.
std::string outcome_of_a_step(const comm::ProcessGroup& group, const NvfsdpOptions& options,
                              double value, bool stops_on_non_finite = false) {
  ToyModel toy;
  SilentReporter reporter;
  const auto engine = nvfsdp_strategy_parallelize(toy.model(), data_mesh(group), options, reporter);
  const auto optimizer = optim::make_sgd({}, engine->trained(), engine->gradients());
  const auto loss = [&](const tensor::Batch&, double, int64_t, int64_t) {
    const at::Tensor sum = toy.net.loss(toy_input(0));
    if (group.rank() == 0) return sum;
    return sum + poison(toy.net.named_parameters(false)["scale"], value);
  };
  training::TrainStepOptions step_options;
  step_options.stops_on_non_finite = stops_on_non_finite;
  training::TrainStep step(*engine, *optimizer, optim::LrSchedule::constant(0, 0), loss,
                           step_options);
  tensor::Batch batch;
  batch.labels = at::zeros({1, 2}, at::kLong);
  return test::error_of<training::NonFiniteError>([&] {
    const double norm = step.run({batch}, 7).grad_norm;
    expect(std::isfinite(value) || !std::isfinite(norm), "nothing is wrong");
  });
}

bool stops_naming_the_parameter(const std::string& text, const std::string& norm) {
  return text.starts_with(
             cat("step 7: the gradient norm is ", norm, " (not finite in scale) while the loss")) &&
         text.find("; nothing was updated.") != std::string::npos;
}

TEST(nvfsdp_strategy_parallelize, check_for_nan_in_grad) {
  expect_ranks(2, [](comm::World& world) {
    for (const char* strategy : {"no_shard", "optim", "optim_grads", "optim_grads_params"}) {
      NvfsdpOptions options;
      options.data_parallel_sharding_strategy = strategy;
      for (const double value : {kNan, kInfinity}) {
        options.config.check_for_nan_in_grad = true;
        const std::string stopped = outcome_of_a_step(world.group(), options, value);
        expect(stops_naming_the_parameter(stopped, std::isnan(value) ? "nan" : "inf"),
               cat(strategy, ": ", stopped));
        options.config.check_for_nan_in_grad = false;
        const std::string unchecked = outcome_of_a_step(world.group(), options, value);
        expect(unchecked == "no error", unchecked);
      }
    }
  });
}

TEST(nvfsdp_strategy_parallelize, report_nan_in_param_grad) {
  expect_ranks(2, [](comm::World& world) {
    NvfsdpOptions options;
    options.config.check_for_nan_in_grad = false;
    options.config.report_nan_in_param_grad = true;
    for (const double value : {kNan, kInfinity}) {
      const std::string text = outcome_of_a_step(world.group(), options, value);
      expect(stops_naming_the_parameter(text, std::isnan(value) ? "nan" : "inf"), text);
    }
    expect(outcome_of_a_step(world.group(), options, 0) == "no error", "a finite gradient");
  });
}

TEST(GradientCheckTest, ARecipeThatStopsOnNonFiniteNumbersNamesTheParameterToo) {
  expect_ranks(2, [](comm::World& world) {
    NvfsdpOptions options;
    options.config.check_for_nan_in_grad = false;
    const std::string text = outcome_of_a_step(world.group(), options, kInfinity, true);
    expect(stops_naming_the_parameter(text, "inf"), text);
  });
}

/// Takes a step of SGD with momentum that leaves out what is not finite: the loss is `loss`, and
/// the gradient of one parameter `gradient` on the last rank only.
void expect_left_out(const comm::ProcessGroup& group, double loss, double gradient,
                     bool stops_on_non_finite) {
  ToyModel toy;
  SilentReporter reporter;
  const auto engine = nvfsdp_strategy_parallelize(toy.model(), data_mesh(group), {}, reporter);
  const auto optimizer = optim::make_sgd({}, engine->trained(), engine->gradients());
  for (const tensor::FlatShard& shard : engine->parameters()) shard.buffer.fill_(0.5);
  engine->parameters_changed();
  bool is_bad = false;
  const auto loss_of = [&](const tensor::Batch&, double, int64_t, int64_t) {
    const at::Tensor sum = toy.net.loss(toy_input(0));
    if (!is_bad || group.rank() != group.size() - 1) return sum;
    return sum + poison(toy.net.named_parameters(false)["scale"], gradient) +
           (std::isfinite(loss) ? 0 : loss);
  };
  training::TrainStepOptions options;
  options.stops_on_non_finite = stops_on_non_finite;
  options.spike_multiple = 1e9;  // no finite norm is a spike
  training::TrainStep step(*engine, *optimizer, optim::LrSchedule::constant(0.01, 0), loss_of,
                           options);
  tensor::Batch batch;
  batch.labels = at::zeros({1, 2}, at::kLong);
  const auto weights = [&] {
    std::vector<at::Tensor> all;
    for (const tensor::FlatShard& shard : engine->trained()) all.push_back(shard.buffer.clone());
    return at::cat(all);
  };
  expect(!step.run({batch}, 0).is_skipped, "a finite step is left out");
  const at::Tensor before = weights();
  is_bad = true;
  for (int i = 1; i < 3; ++i) {
    const training::StepResult result = step.run({batch}, i);
    expect(result.is_skipped, cat("goes on with loss ", result.loss, ", norm ", result.grad_norm));
    expect(optimizer->num_steps() == 1, "the optimizer's step counts");
    expect(at::equal(weights(), before), "the weights have changed");
  }
  is_bad = false;
  expect(!step.run({batch}, 3).is_skipped, "the step after it is left out");
  expect(!at::equal(weights(), before), "the step after it changes nothing");
  expect(at::isfinite(weights()).all().item<bool>(), "weights are not finite");
}

TEST(GradientCheckTest, WhatIsNotFiniteIsLeftOutOnAllRanksBeforeAnythingThrows) {
  for (const int num_ranks : {1, 2}) {
    expect_ranks(num_ranks, [](comm::World& world) {
      for (const bool stops : {true, false}) {
        expect_left_out(world.group(), kNan, 0, stops);
        expect_left_out(world.group(), kInfinity, 0, stops);
        expect_left_out(world.group(), 0, kNan, stops);
        expect_left_out(world.group(), 0, kInfinity, stops);
      }
    });
  }
}

}  // namespace
}  // namespace automodel::distributed
