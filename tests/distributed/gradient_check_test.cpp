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
      const std::string stopped = outcome_of_a_step(world.group(), options, kNan);
      expect(stops_naming_the_parameter(stopped, "nan"), cat(strategy, ": ", stopped));
      const std::string infinite = outcome_of_a_step(world.group(), options, kInfinity);
      expect(infinite == "no error", infinite);
      options.config.check_for_nan_in_grad = false;
      const std::string unchecked = outcome_of_a_step(world.group(), options, kNan);
      expect(unchecked == "no error", unchecked);
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

}  // namespace
}  // namespace automodel::distributed
