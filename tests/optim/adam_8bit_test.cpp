// Against bitsandbytes: tests/optim/data/adam_8bit.safetensors, which
// scripts/goldens/make_adam_8bit_goldens.py makes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/file.h"
#include "kernels/base/dynamic_codes.h"
#include "kernels/base/fused.h"
#include "optim/optimizer.h"
#include "optim/optimizer_units.h"
#include "support/temporary_directory.h"

namespace automodel::optim {
namespace {

using tensor::FlatSegment;
using tensor::FlatShard;

constexpr double kLr = 1e-2;

checkpoint::SafetensorsFile goldens() {
  return checkpoint::SafetensorsFile(test::source_file("tests/optim/data/adam_8bit.safetensors"));
}

/// The state of a name, of the only unit.
const FlatShard& state_of(Optimizer& optimizer, const std::string& name) {
  const FlatShard* const state = find_state(optimizer, name);
  if (state == nullptr) throw InternalError("no state " + name);
  return *state;
}

TEST(Adam8bit, TheMapsAreThoseOfBitsandbytes) {
  const auto golden = goldens();
  EXPECT_TRUE(at::equal(kernels::dynamic_codes(/*is_signed=*/true), golden.read("signed")));
  EXPECT_TRUE(at::equal(kernels::dynamic_codes(/*is_signed=*/false), golden.read("unsigned")));
}

struct Golden {
  std::string name;
  Adam8bitConfig config;
  at::ScalarType dtype = at::kFloat;
};

std::vector<Golden> cases() {
  Adam8bitConfig adamw, adam, small;
  adamw.weight_decay = adam.weight_decay = 0.1;
  adam.betas = {0.8, 0.95};
  adam.eps = 1e-5;
  small.weight_decay = 1e-2;
  small.min_8bit_size = 4301;
  Adam8bitConfig bfloat16;
  bfloat16.weight_decay = 1e-2;
  return {
      {"adamw", adamw}, {"adam", adam}, {"bfloat16", bfloat16, at::kBFloat16}, {"small", small}};
}

/// Codes are equal with every table of loops as gcc compiles them. Other choices of fused
/// multiply-adds move an average by its last bit, and so a number halfway to the code beside its.
constexpr int64_t kHalfway = 2;

void expect_codes(Optimizer& optimizer, const std::string& name, const at::Tensor& codes,
                  const at::Tensor& absmax) {
  const at::Tensor found = state_of(optimizer, name + "_8bit").buffer;
  const at::Tensor apart = (found.to(at::kInt) - codes.to(at::kInt)).abs();
  EXPECT_LE(apart.max().item<int64_t>(), 1) << name;
  EXPECT_LE(apart.sum().item<int64_t>(), kHalfway) << name;
  const at::Tensor factors = state_of(optimizer, name + "_absmax").buffer;
  EXPECT_TRUE(at::allclose(factors, absmax, 1e-6, 0)) << name;
}

/// Updates are a hundredth or more, so weights within 1e-6 have had the same codes.
void expect_golden(const checkpoint::SafetensorsFile& golden, const Golden& wanted,
                   const std::string& place, const at::Tensor& values, Optimizer& optimizer) {
  SCOPED_TRACE(place);
  const at::Tensor parameter = golden.read(place + "parameter");
  const at::Tensor apart = (values.to(at::kFloat) - parameter.to(at::kFloat)).abs();
  const at::Tensor size = parameter.to(at::kFloat).abs().clamp_min(1);
  EXPECT_LE((apart / size).gt(1e-6).sum().item<int64_t>(), kHalfway);
  if (wanted.name == "small") {
    for (const std::string name : {"exp_avg", "exp_avg_sq"}) {
      const at::Tensor state = golden.read(place + (name == "exp_avg" ? "state1" : "state2"));
      // Averages are sums of gradients that may cancel: last bits of numbers up to 1.
      EXPECT_TRUE(at::allclose(state_of(optimizer, name).buffer, state, 1e-6, 1e-7)) << name;
      EXPECT_EQ(state_of(optimizer, name + "_8bit").buffer.numel(), 0);
    }
    return;
  }
  expect_codes(optimizer, "exp_avg", golden.read(place + "state1"), golden.read(place + "absmax1"));
  expect_codes(optimizer, "exp_avg_sq", golden.read(place + "state2"),
               golden.read(place + "absmax2"));
  EXPECT_EQ(state_of(optimizer, "exp_avg").buffer.numel(), 0);
}

TEST(Adam8bit, StepsAreThoseOfBitsandbytes) {
  const auto golden = goldens();
  const at::Tensor gradients = golden.read("gradients");
  for (const bool is_plain : {false, true}) {
    for (const Golden& wanted : cases()) {
      SCOPED_TRACE(wanted.name + (is_plain ? " plain" : " fused"));
      const kernels::PlainPathScope path(is_plain);
      FlatShard parameter = unit_of({{43, 100}}, wanted.dtype), gradient = parameter;
      parameter.buffer.copy_(golden.read("start"));
      gradient.buffer = at::zeros_like(parameter.buffer);
      const auto optimizer = make_adam_8bit(wanted.config, {parameter}, {gradient});
      for (int64_t step = 0; step < gradients.size(0); ++step) {
        // Clipping's coefficient is a power of two, so that it changes no bit.
        gradient.buffer.copy_(gradients[step] * 2);
        optimizer->step({.lr = kLr, .weight_decay = wanted.config.weight_decay, .grad_scale = 0.5});
        const std::string place = cat(wanted.name, ".", step + 1, ".");
        if (step == 0 || step + 1 == gradients.size(0)) {
          expect_golden(golden, wanted, place, parameter.buffer, *optimizer);
        }
      }
    }
  }
}

TEST(Adam8bit, RanksThatShareATensorHaveTheNumbersOfOne) {
  at::manual_seed(5);
  const auto make = [](auto parameters, auto gradients) {
    return make_adam_8bit({}, std::move(parameters), std::move(gradients));
  };
  SharedTensor one({0, 5000}, at::kFloat, make), three({0, 256, 2560, 5000}, at::kFloat, make);
  for (int i = 0; i < 3; ++i) {
    const at::Tensor gradient = at::randn({5000});
    one.step(gradient, {.lr = kLr, .weight_decay = 0.1});
    three.step(gradient, {.lr = kLr, .weight_decay = 0.1});
  }
  EXPECT_TRUE(at::equal(one.values(), three.values()));
  for (const std::string name :
       {"exp_avg_8bit", "exp_avg_absmax", "exp_avg_sq_8bit", "exp_avg_sq_absmax"}) {
    EXPECT_TRUE(at::equal(one.state(name), three.state(name))) << name;
  }
  EXPECT_GT(one.values().abs().min().item<float>(), 0.0f);
  EXPECT_EQ(three.parameters[1].buffer.narrow(0, 0, 16).abs().sum().item<float>(), 0.0f);
}

TEST(Adam8bit, SmallTensorsBetweenOthersKeepFloat32) {
  at::manual_seed(6);
  const std::vector<std::vector<int64_t>> shapes = {{64, 80}, {64}, {65, 80}, {100}};
  FlatShard parameter = unit_of(shapes, at::kFloat), gradient = unit_of(shapes, at::kFloat);
  Adam8bitConfig config;
  ParamGroupOverride frozen;
  frozen.pattern = "w2";
  frozen.lr_mult = 0;
  config.param_group_overrides = {frozen};
  const auto optimizer = make_adam_8bit(config, {parameter}, {gradient});
  std::vector<std::unique_ptr<Optimizer>> alone;
  std::vector<FlatShard> values, slopes;
  for (const auto& shape : shapes) {
    values.push_back(unit_of({shape}, at::kFloat));
    slopes.push_back(unit_of({shape}, at::kFloat));
    alone.push_back(make_adam_8bit({}, {values.back()}, {slopes.back()}));
  }
  for (int step = 0; step < 3; ++step) {
    gradient.buffer.copy_(at::randn_like(gradient.buffer));
    optimizer->step({.lr = kLr});
    for (size_t i = 0; i < shapes.size(); ++i) {
      slopes[i].buffer.copy_(gradient.view(gradient.segments[i]));
      alone[i]->step({.lr = i == 2 ? 0 : kLr});
    }
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    EXPECT_TRUE(at::equal(parameter.view(parameter.segments[i]), values[i].buffer)) << i;
  }
  EXPECT_EQ(state_of(*optimizer, "exp_avg").segments.size(), 2u);
  EXPECT_EQ(state_of(*optimizer, "exp_avg_8bit").segments.size(), 2u);
}

TEST(Adam8bit, BytesOfStateAreThoseThatAreAllocated) {
  const FlatShard unit = unit_of({{64, 80}, {64}, {43, 100}, {100}}, at::kBFloat16);
  FlatShard gradient = unit;
  gradient.buffer = at::zeros_like(unit.buffer);
  const auto optimizer = make_adam_8bit({}, {unit}, {gradient});
  size_t bytes = 0;
  for (const OptimizerState& state : optimizer->state()) bytes += state.shards[0].buffer.nbytes();
  EXPECT_EQ(static_cast<int64_t>(bytes), adam_8bit_state_bytes({}, unit.segments));
  EXPECT_EQ(bytes, 2u * (5120 + 4 * 20 + 4300 + 4 * 17 + 4 * 164));
}

TEST(Adam8bit, ARankThatHoldsPaddingOnlyHasNothingToUpdate) {
  const FlatShard padding{"", at::zeros({256}), {}};
  const auto optimizer = make_adam_8bit({}, {padding}, {padding});
  optimizer->step({.lr = kLr});
  EXPECT_EQ(optimizer->num_steps(), 1);
}

}  // namespace
}  // namespace automodel::optim
