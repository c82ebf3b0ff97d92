// Against flashoptim: tests/optim/data/flash_adamw.safetensors, which
// scripts/goldens/make_flash_adamw_goldens.py makes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/file.h"
#include "kernels/base/fused.h"
#include "optim/optimizer.h"
#include "optim/optimizer_units.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::optim {
namespace {

using tensor::FlatSegment;
using tensor::FlatShard;

constexpr double kLr = 1e-2;

/// The state of a name; undefined when there is none.
at::Tensor state_of(Optimizer& optimizer, const std::string& name, size_t unit = 0) {
  const FlatShard* const state = find_state(optimizer, name, unit);
  return state == nullptr ? at::Tensor() : state->buffer;
}

struct Golden {
  std::string name;
  FlashAdamWConfig config;
  at::ScalarType dtype = at::kBFloat16;
};

std::vector<Golden> cases() {
  FlashAdamWConfig plain, bits24, bits32, other32;
  plain.weight_decay = bits24.weight_decay = bits32.weight_decay = other32.weight_decay = 0.1;
  plain.master_weight_bits.reset();
  bits32.master_weight_bits = other32.master_weight_bits = 32;
  other32.betas = {0.8, 0.95};
  other32.eps = 1e-5;
  const auto unquantized = [](FlashAdamWConfig config) {
    config.quantize = false;
    return config;
  };
  FlashAdamWConfig decoupled = plain;
  decoupled.decouple_lr = true;
  decoupled.lr = kLr;
  return {{"float32", plain, at::kFloat},
          {"float32", bits24, at::kFloat},  // which lacks no bits
          {"float32_unquantized", unquantized(plain), at::kFloat},
          {"bfloat16", plain},
          {"bfloat16_24", bits24},
          {"bfloat16_32", other32},
          {"bfloat16_unquantized", unquantized(plain)},
          {"bfloat16_24_unquantized", unquantized(bits24)},
          {"bfloat16_32_unquantized", unquantized(bits32)},
          {"float16_24", bits24, at::kHalf},
          {"decoupled_rate", decoupled, at::kFloat}};
}

/// What the plain path computes has the package's bits. Fused multiply-adds move an average by its
/// last bit, which decides a code, a rounding or a part of a correction of few elements.
constexpr int64_t kFew = 12;  // of 620

/// Elements that are not within `most` of a number of 1 or more.
int64_t num_apart(const at::Tensor& found, const at::Tensor& wanted, double most) {
  const at::Tensor apart = (found.to(at::kDouble) - wanted.to(at::kDouble)).abs();
  return apart.gt(wanted.to(at::kDouble).abs().clamp_min(1) * most).sum().item<int64_t>();
}

/// A state, of which few elements may be one code or rounding apart.
void expect_state(const checkpoint::SafetensorsFile& golden, const std::string& name,
                  const at::Tensor& found) {
  SCOPED_TRACE(name);
  const at::Tensor wanted = golden.read(name);
  ASSERT_EQ(found.scalar_type(), wanted.scalar_type());
  if (kernels::is_plain_path_asked()) {
    EXPECT_TRUE(at::equal(found, wanted));
  } else if (found.is_floating_point()) {
    const double rounding = found.scalar_type() == at::kFloat      ? 1e-6
                            : found.scalar_type() == at::kBFloat16 ? 1.0 / 128
                                                                   : 1.0 / 1024;
    // Averages are sums of gradients that may cancel: roundings of numbers up to a tenth.
    EXPECT_TRUE(
        at::allclose(found.to(at::kDouble), wanted.to(at::kDouble), rounding, rounding / 10));
    EXPECT_LE(num_apart(found, wanted, 1e-6), kFew);
  } else {
    const at::Tensor apart = (found.to(at::kInt) - wanted.to(at::kInt)).abs();
    EXPECT_LE(apart.max().item<int64_t>(), 1);
    EXPECT_LE(apart.sum().item<int64_t>(), kFew);
  }
}

void expect_average(const checkpoint::SafetensorsFile& golden, const std::string& place,
                    const std::string& name, bool is_quantized, Optimizer& optimizer) {
  const std::string own = "flash_" + name;
  expect_state(golden, place + name, state_of(optimizer, is_quantized ? own + "_codes" : own));
  if (is_quantized) {
    expect_state(golden, cat(place, name, "_scales"), state_of(optimizer, own + "_scales"));
  }
}

/// The weight that a parameter and its correction stand for, in float64.
at::Tensor weight_of(const at::Tensor& parameter, const at::Tensor& correction) {
  if (!correction.defined()) return parameter.to(at::kDouble);
  const bool is_half = parameter.scalar_type() == at::kHalf;
  const at::Tensor bits = parameter.view(at::kShort).to(at::kInt).bitwise_and_(0x7fff);
  const at::Tensor exponent = bits.__rshift__(is_half ? 10 : 7).clamp_min_(1);
  const at::Tensor half_gap = at::exp2(exponent.to(at::kDouble) - (is_half ? 26 : 135));
  const double most = correction.scalar_type() == at::kChar ? 127 : 32767;
  return parameter.to(at::kDouble) + correction.to(at::kDouble) / most * half_gap;
}

void expect_golden(const checkpoint::SafetensorsFile& golden, const Golden& wanted,
                   const std::string& place, const at::Tensor& parameter, Optimizer& optimizer) {
  SCOPED_TRACE(place);
  at::Tensor correction, golden_correction;
  for (const std::string name : {"flash_corrections_int8", "flash_corrections_int16"}) {
    const at::Tensor found = state_of(optimizer, name);
    if (found.defined() && found.numel() > 0) correction = found;
  }
  const at::Tensor golden_parameter = golden.read(place + "parameter");
  if (correction.defined()) {
    golden_correction = golden.read(place + "error_bits");
    ASSERT_EQ(correction.scalar_type(), golden_correction.scalar_type());
  }
  if (kernels::is_plain_path_asked()) {
    EXPECT_TRUE(at::equal(parameter, golden_parameter));
    EXPECT_TRUE(!correction.defined() || at::equal(correction, golden_correction));
  }
  // Updates are a hundredth or more, so weights within 1e-6 have had the same codes.
  EXPECT_LE(num_apart(parameter, golden_parameter, 1e-6), kFew);
  EXPECT_LE(num_apart(weight_of(parameter, correction),
                      weight_of(golden_parameter, golden_correction), 1e-6),
            kFew);
  expect_average(golden, place, "exp_avg", wanted.config.quantize, optimizer);
  expect_average(golden, place, "exp_avg_sq", wanted.config.quantize, optimizer);
}

TEST(FlashAdamW, StepsAreThoseOfFlashoptim) {
  const checkpoint::SafetensorsFile golden(
      test::source_file("tests/optim/data/flash_adamw.safetensors"));
  const at::Tensor gradients = golden.read("gradients"), rates = golden.read("rates");
  for (const bool is_plain : {false, true}) {
    for (const Golden& wanted : cases()) {
      SCOPED_TRACE(wanted.name + (is_plain ? " plain" : " fused"));
      const kernels::PlainPathScope path(is_plain);
      FlatShard parameter = unit_of({{20, 31}}, wanted.dtype), gradient = parameter;
      parameter.buffer.copy_(golden.read("start"));
      gradient.buffer = at::zeros_like(parameter.buffer);
      const auto optimizer = make_flash_adamw(wanted.config, {parameter}, {gradient});
      for (int64_t step = 0; step < gradients.size(0); ++step) {
        // Clipping's coefficient is a power of two, so that it changes no bit.
        gradient.buffer.copy_(gradients[step] * 2);
        optimizer->step({.lr = rates[step].item<double>(),
                         .weight_decay = wanted.config.weight_decay,
                         .grad_scale = 0.5});
        if (step == 0 || step + 1 == gradients.size(0)) {
          expect_golden(golden, wanted, cat(wanted.name, ".", step + 1, "."), parameter.buffer,
                        *optimizer);
        }
      }
    }
  }
}

SharedTensor shared_tensor(const std::vector<int64_t>& borders) {
  return {borders, at::kBFloat16, [](auto parameters, auto gradients) {
            return make_flash_adamw({}, std::move(parameters), std::move(gradients));
          }};
}

TEST(FlashAdamW, RanksThatShareATensorHaveTheNumbersOfOne) {
  at::manual_seed(5);
  SharedTensor one = shared_tensor({0, 5000}), three = shared_tensor({0, 32, 2560, 5000});
  for (int i = 0; i < 3; ++i) {
    const at::Tensor gradient = at::randn({5000});
    one.step(gradient, {.lr = kLr, .weight_decay = 0.1});
    three.step(gradient, {.lr = kLr, .weight_decay = 0.1});
  }
  EXPECT_TRUE(at::equal(one.values(), three.values()));
  for (const std::string name :
       {"flash_exp_avg_codes", "flash_exp_avg_scales", "flash_exp_avg_sq_codes",
        "flash_exp_avg_sq_scales", "flash_corrections_int8"}) {
    EXPECT_TRUE(at::equal(one.state(name), three.state(name))) << name;
  }
  EXPECT_GT(one.values().abs().min().item<float>(), 0.0f);
  EXPECT_EQ(three.parameters[1].buffer.narrow(0, 0, 16).abs().sum().item<float>(), 0.0f);
}

TEST(FlashAdamW, ABorderWithinAGroupIsRefused) {
  EXPECT_EQ(test::error_of<UserError>([] {
              shared_tensor({0, 16, 64});
            }),
            "the optimizer keeps averages in 8 bits by blocks of 32 elements, and a border between "
            "data-parallel ranks (elements 0 to 16 of 64) cuts a block of w: take the strategy "
            "ddp, another number of ranks, or an optimizer without 8 bits");
}

/// Tensors whose last group is not full, of hyper-parameters of their own, in units of two dtypes.
TEST(FlashAdamW, ATensorsStateIsItsOwnAmongOthers) {
  at::manual_seed(6);
  const std::vector<std::vector<int64_t>> shapes = {{6, 7}, {5}, {65, 3}};
  const at::ScalarType dtypes[] = {at::kBFloat16, at::kFloat};
  std::vector<FlatShard> parameters, gradients, values, slopes;
  for (const at::ScalarType dtype : dtypes) {
    parameters.push_back(unit_of(shapes, dtype));
    gradients.push_back(unit_of(shapes, dtype));
  }
  FlashAdamWConfig config;
  ParamGroupOverride slow;
  slow.pattern = "w1";
  slow.lr_mult = 0.5;
  slow.wd_mult = 0;
  config.param_group_overrides = {slow};
  const auto optimizer = make_flash_adamw(config, parameters, gradients);
  std::vector<std::unique_ptr<Optimizer>> alone;
  for (const FlatShard& unit : parameters) {
    for (const auto& shape : shapes) {
      values.push_back(unit_of({shape}, unit.buffer.scalar_type()));
      slopes.push_back(unit_of({shape}, unit.buffer.scalar_type()));
      alone.push_back(make_flash_adamw({}, {values.back()}, {slopes.back()}));
    }
  }
  for (int step = 0; step < 3; ++step) {
    for (FlatShard& unit : gradients) unit.buffer.copy_(at::randn_like(unit.buffer));
    optimizer->step({.lr = kLr, .weight_decay = 0.1});
    for (size_t i = 0; i < alone.size(); ++i) {
      const FlatShard& unit = gradients[i / 3];
      slopes[i].buffer.copy_(unit.view(unit.segments[i % 3]));
      const bool is_slow = i % 3 == 1;
      alone[i]->step({.lr = is_slow ? kLr / 2 : kLr, .weight_decay = is_slow ? 0 : 0.1});
    }
  }
  for (size_t i = 0; i < alone.size(); ++i) {
    const FlatShard& unit = parameters[i / 3];
    EXPECT_TRUE(at::equal(unit.view(unit.segments[i % 3]), values[i].buffer)) << i;
  }
  EXPECT_EQ(state_of(*optimizer, "flash_corrections_int8", 0).numel(), 42 + 5 + 195);
  EXPECT_EQ(state_of(*optimizer, "flash_corrections_int8", 1).numel(), 0);
}

/// Other kinds of Adam have none of the names, and other widths have other ones: dtypes are
/// converted where a checkpoint is read.
TEST(FlashAdamW, StateSaysInItsNamesWhatItIs) {
  const FlatShard unit = unit_of({{64}}, at::kBFloat16);
  const auto names_of = [&](std::optional<int64_t> bits, bool is_quantized) {
    FlashAdamWConfig config;
    config.master_weight_bits = bits;
    config.quantize = is_quantized;
    std::string names;
    const auto optimizer = make_flash_adamw(config, {unit}, {unit});
    for (const OptimizerState& state : optimizer->state()) {
      names += cat(state.name, " ", c10::toString(state.shards[0].buffer.scalar_type()), "\n");
    }
    return names;
  };
  EXPECT_EQ(names_of(24, true),
            "flash_exp_avg_codes Char\nflash_exp_avg_scales Half\nflash_exp_avg_sq_codes Byte\n"
            "flash_exp_avg_sq_scales Half\nflash_corrections_int8 Char\n");
  EXPECT_EQ(names_of(32, false),
            "flash_exp_avg BFloat16\nflash_exp_avg_sq BFloat16\nflash_corrections_int16 Short\n");
  EXPECT_EQ(names_of(std::nullopt, false), "flash_exp_avg BFloat16\nflash_exp_avg_sq BFloat16\n");
}

TEST(FlashAdamW, BytesOfStateAreThoseThatAreAllocated) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    for (const std::optional<int64_t> bits : {std::optional<int64_t>(), {24}, {32}}) {
      for (const bool is_quantized : {false, true}) {
        FlashAdamWConfig config;
        config.master_weight_bits = bits;
        config.quantize = is_quantized;
        const FlatShard unit = unit_of({{64, 80}, {64}, {43, 100}, {100}}, dtype);
        const auto optimizer = make_flash_adamw(config, {unit}, {unit});
        size_t bytes = 0;
        for (const OptimizerState& state : optimizer->state()) {
          bytes += state.shards[0].buffer.nbytes();
        }
        EXPECT_EQ(static_cast<int64_t>(bytes),
                  flash_adamw_state_bytes(config, unit.segments, dtype));
        const size_t numel = 5120 + 64 + 4300 + 100, num_groups = 160 + 2 + 135 + 4;
        const size_t size = c10::elementSize(dtype);
        const size_t correction = size == 4 || !bits ? 0 : static_cast<size_t>(*bits) / 8 - 2;
        EXPECT_EQ(bytes, numel * correction +
                             (is_quantized ? 2 * (numel + 2 * num_groups) : 2 * numel * size));
      }
    }
  }
}

TEST(FlashAdamW, StopsWhereARateIsTooSmallForAWeight) {
  FlatShard parameter = unit_of({{4}, {4}}, at::kBFloat16), gradient = parameter;
  parameter.buffer.narrow(0, 0, 4).fill_(0.01);
  parameter.buffer.narrow(0, 4, 4).fill_(-3);
  gradient.buffer = at::ones_like(parameter.buffer);
  FlashAdamWConfig config;
  const auto error_at = [&](double lr, std::optional<int64_t> bits, bool is_checked) {
    config.master_weight_bits = bits;
    config.check_numerics = is_checked;
    FlatShard copy = parameter;
    copy.buffer = parameter.buffer.clone();
    const auto optimizer = make_flash_adamw(config, {copy}, {gradient});
    return test::error_of<UserError>([&] { optimizer->step({.lr = lr}); });
  };
  // -3 is held to 2^-6 / 0.49 by a bfloat16, and to 2^-14 / 0.49 by 24 bits; steps are a tenth of
  // lr.
  EXPECT_EQ(error_at(0.3, std::nullopt, true),
            "optimizer.check_numerics: the learning rate 0.3 may be too small to change w1: its "
            "largest weight is 3, which 16 bits hold to 3.19e-02, and a step may be a tenth of "
            "the rate. Take a larger lr or more master_weight_bits, or check_numerics: false");
  EXPECT_EQ(error_at(0.33, std::nullopt, true), "no error");
  EXPECT_NE(error_at(1.24e-3, 24, true), "no error");
  EXPECT_EQ(error_at(1.25e-3, 24, true), "no error");
  EXPECT_EQ(error_at(1.24e-3, 32, true), "no error");
  EXPECT_EQ(error_at(0, 24, true), "no error");
  EXPECT_EQ(error_at(1e-9, 24, false), "no error");
}

/// They grow while a run goes on, and are measured again when it continues.
TEST(FlashAdamW, MeasuresWeightsWhenACheckpointIsRead) {
  FlatShard parameter = unit_of({{4}}, at::kBFloat16), gradient = parameter;
  gradient.buffer = at::ones_like(parameter.buffer);
  parameter.buffer.fill_(0.01);
  FlashAdamWConfig config;
  config.check_numerics = true;
  const auto optimizer = make_flash_adamw(config, {parameter}, {gradient});
  const auto step = [&] {
    return test::error_of<UserError>([&] { optimizer->step({.lr = 1e-3}); });
  };
  EXPECT_EQ(step(), "no error");
  parameter.buffer.fill_(100);
  EXPECT_EQ(step(), "no error");
  optimizer->set_num_steps(2);
  EXPECT_NE(step(), "no error");
  EXPECT_EQ(optimizer->num_steps(), 2);
}

TEST(FlashAdamW, RefusesFloat64) {
  const FlatShard unit = unit_of({{4}}, at::kDouble);
  EXPECT_EQ(test::error_of<UserError>([&] { make_flash_adamw({}, {unit}, {unit}); }),
            "FlashAdamW takes parameters of float32, bfloat16 and float16, not of float64");
}

TEST(FlashAdamW, ARankThatHoldsPaddingOnlyHasNothingToUpdate) {
  const FlatShard padding{"", at::zeros({256}, at::kBFloat16), {}};
  const auto optimizer = make_flash_adamw({}, {padding}, {padding});
  optimizer->step({.lr = kLr});
  EXPECT_EQ(optimizer->num_steps(), 1);
}

TEST(FlashAdamW, DescribesWhatItKeeps) {
  const auto text = [](const FlashAdamWConfig& config, at::ScalarType dtype) {
    const FlatShard unit = unit_of({{4}}, dtype);
    return make_flash_adamw(config, {unit}, {unit})->describe();
  };
  FlashAdamWConfig other;
  other.quantize = false;
  other.decouple_lr = true;
  const std::string common = "FlashAdamW (lr 0.001, betas 0.9 0.999, eps 1e-08, weight_decay 0.01";
  EXPECT_EQ(text({}, at::kBFloat16), common + ", averages in 8 bits, weights of 24 bits)");
  EXPECT_EQ(text({}, at::kFloat), common + ", averages in 8 bits)");
  EXPECT_EQ(text(other, at::kFloat), common + ", weight decay by lr's share)");
}

}  // namespace
}  // namespace automodel::optim
