// Against torch's and dion's Muon: tests/optim/data/muon.safetensors, which
// scripts/goldens/make_muon_goldens.py makes.
#include "optim/muon.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "kernels/optimizer/orthogonalize.h"
#include "optim/optimizer_units.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::optim {
namespace {

using tensor::FlatSegment;
using tensor::FlatShard;

constexpr double kLr = 2e-2;

const checkpoint::SafetensorsFile& golden() {
  static const checkpoint::SafetensorsFile file(
      test::source_file("tests/optim/data/muon.safetensors"));
  return file;
}

const TensorRoles kRoles = {{"tall", TensorRole::kMatrix},         {"wide", TensorRole::kMatrix},
                            {"square", TensorRole::kMatrix},       {"bias", TensorRole::kVector},
                            {"embedding", TensorRole::kEmbedding}, {"lm_head", TensorRole::kHead}};

/// A unit with the golden's tensors of these names, and their gradients.
struct Unit {
  FlatShard values{"", {}, {}};
  FlatShard gradients{"", {}, {}};

  explicit Unit(const std::vector<std::string>& names, at::ScalarType dtype = at::kFloat) {
    std::vector<at::Tensor> flat;
    int64_t numel = 0;
    for (const std::string& name : names) {
      const at::Tensor value = golden().read(name);
      values.segments.push_back({name, tensor::ShardSpec::whole(value.sizes().vec()), numel});
      flat.push_back(value.flatten());
      numel += value.numel();
    }
    values.buffer = at::cat(flat).to(dtype);
    gradients = {"", at::zeros({numel}), values.segments};
  }

  void run(Optimizer& optimizer, const StepRates& rates, int64_t first = 0, int64_t end = 4) {
    for (int64_t step = first; step < end; ++step) {
      for (const FlatSegment& segment : gradients.segments) {
        gradients.view(segment).copy_(golden().read(segment.fqn + ".gradients")[step].flatten());
      }
      optimizer.step(rates);
    }
  }

  /// As near to the float64 numbers as float32 is; the peers orthogonalize in bfloat16.
  void expect_golden(const std::string& name) const {
    for (const FlatSegment& segment : values.segments) {
      const std::string key = cat(name, ".", segment.fqn);
      const at::Tensor exact = golden().read(key + ".exact").flatten();
      const auto distance = [&](const at::Tensor& found) {
        return (found.to(at::kDouble) - exact).abs().max().item<double>();
      };
      EXPECT_LE(distance(values.view(segment)), 1e-5) << key;
      EXPECT_LE(distance(values.view(segment)), 2 * distance(golden().read(key).flatten()) + 1e-12)
          << key;
    }
  }
};

/// Changes matrices that one rank holds whole.
tensor::MatrixStepper whole_matrix_stepper(const std::vector<FlatSegment>& parts) {
  for (const FlatSegment& part : parts) AM_CHECK(part.spec.is_whole(), part.fqn);
  return [parts](const tensor::MatrixStep& step) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const at::Tensor values = at::empty({parts[i].spec.numel()});
      step.read(i, values);
      step.write(i, step.compute(values.view(parts[i].spec.global_shape)).flatten());
    }
  };
}

MatrixContext whole_tensors() {
  return {kRoles, whole_matrix_stepper};
}

const std::vector<std::string> kMatrices = {"tall", "wide", "square"};
const std::vector<std::string> kAll = {"tall", "bias", "wide", "embedding", "square", "lm_head"};

TEST(MuonTest, OfMatricesAloneIsTorchs) {
  Unit plain(kMatrices);
  const auto optimizer = make_torch_muon({}, {plain.values}, {plain.gradients}, whole_tensors());
  plain.run(*optimizer, {.lr = kLr, .weight_decay = 0.1});
  plain.expect_golden("torch");
  TorchMuonConfig config;
  config.momentum = 0.9;
  config.nesterov = false;
  config.adjust_lr_fn = "match_rms_adamw";
  config.ns_steps = 3;
  Unit other(kMatrices);
  other.run(*make_torch_muon(config, {other.values}, {other.gradients}, whole_tensors()),
            {.lr = kLr, .weight_decay = 0});
  other.expect_golden("torch_rms");
}

MuonConfig dion_config() {
  MuonConfig config;
  config.lr = kLr;
  config.scalar_lr = 3e-3;
  config.embed_lr = 1e-3;
  return config;
}

TEST(MuonTest, WithAdamWOfOtherTensorsIsDions) {
  Unit plain(kAll);
  const auto optimizer =
      make_muon(dion_config(), {plain.values}, {plain.gradients}, whole_tensors());
  plain.run(*optimizer, {.lr = kLr, .weight_decay = 0.1});
  plain.expect_golden("dion");
  MuonConfig config = dion_config();
  config.mu = 0.8;
  config.nesterov = true;
  config.adjust_lr = "rms_norm";
  Unit other(kAll);
  other.run(*make_muon(config, {other.values}, {other.gradients}, whole_tensors()), {.lr = kLr});
  other.expect_golden("dion_rms");
}

TEST(MuonTest, TheHeadHasARateOfItsOwn) {
  const auto change = [](const MuonConfig& config) {
    Unit unit({"lm_head"});
    const at::Tensor before = unit.values.buffer.clone();
    unit.run(*make_muon(config, {unit.values}, {unit.gradients}, whole_tensors()), {.lr = kLr}, 0,
             1);
    return (unit.values.buffer - before).abs().max().item<double>();
  };
  EXPECT_NEAR(change(dion_config()), kLr / 4, 1e-5);  // of 16 columns
  MuonConfig other = dion_config();
  other.lm_head_lr = 7e-3;
  EXPECT_NEAR(change(other), 7e-3, 1e-5);
}

/// A schedule and an override change every group's rate alike.
TEST(MuonTest, RatesOfGroupsFollowTheStepsRate) {
  const auto change = [](double lr, const MuonConfig& config, const std::string& name) {
    Unit unit({name});
    const at::Tensor before = unit.values.buffer.clone();
    unit.run(*make_muon(config, {unit.values}, {unit.gradients}, whole_tensors()), {.lr = lr}, 0,
             1);
    return (unit.values.buffer - before).norm().item<double>();
  };
  MuonConfig overridden = dion_config();
  overridden.param_group_overrides = {{.pattern = "tall|bias|embedding|lm_head", .lr_mult = 0.5}};
  for (const char* name : {"tall", "bias", "embedding", "lm_head"}) {
    const double whole = change(kLr, dion_config(), name);
    EXPECT_NEAR(change(kLr / 2, dion_config(), name) / whole, 0.5, 1e-3) << name;
    EXPECT_NEAR(change(kLr, overridden, name) / whole, 0.5, 1e-3) << name;
  }
}

TEST(MuonTest, ClippingScalesGradients) {
  Unit scaled(kAll), plain(kAll);
  const auto first = make_muon(dion_config(), {scaled.values}, {scaled.gradients}, whole_tensors());
  const auto second = make_muon(dion_config(), {plain.values}, {plain.gradients}, whole_tensors());
  scaled.run(*first, {.lr = kLr, .grad_scale = 0.5}, 0, 2);
  plain.run(*second, {.lr = kLr}, 0, 2);
  const at::Tensor half = find_state(*first, "muon_momentum")->buffer;
  EXPECT_TRUE(at::allclose(half * 2, find_state(*second, "muon_momentum")->buffer, 1e-6, 1e-9));
}

TEST(MuonTest, KeepsOneStateOfMatricesAndTwoOfOthers) {
  const Unit unit(kAll, at::kBFloat16);
  const auto optimizer = make_muon({}, {unit.values}, {unit.gradients}, whole_tensors());
  int64_t bytes = 0;
  for (const OptimizerState& state : optimizer->state()) {
    bytes += static_cast<int64_t>(state.shards[0].buffer.nbytes());
  }
  EXPECT_EQ(bytes, muon_state_bytes(unit.values.segments, at::kBFloat16, kRoles));
  EXPECT_EQ(find_state(*optimizer, "muon_momentum")->segments.size(), 3u);
  EXPECT_EQ(find_state(*optimizer, "exp_avg")->segments.size(), 3u);
  EXPECT_EQ(find_state(*optimizer, "exp_avg_sq")->segments[0].fqn, "bias");
}

TEST(MuonTest, ContinuesFromItsState) {
  Unit whole(kAll), parts(kAll);
  whole.run(*make_muon(dion_config(), {whole.values}, {whole.gradients}, whole_tensors()),
            {.lr = kLr});
  const auto first = make_muon(dion_config(), {parts.values}, {parts.gradients}, whole_tensors());
  parts.run(*first, {.lr = kLr}, 0, 2);
  const auto second = make_muon(dion_config(), {parts.values}, {parts.gradients}, whole_tensors());
  for (size_t i = 0; i < first->state().size(); ++i) {
    second->state()[i].shards[0].buffer.copy_(first->state()[i].shards[0].buffer);
  }
  second->set_num_steps(first->num_steps());
  parts.run(*second, {.lr = kLr}, 2, 4);
  EXPECT_TRUE(parts.values.buffer.equal(whole.values.buffer));
}

/// In bfloat16, as the peers do; momentum and weights are rounded to it too.
TEST(MuonTest, NarrowWeightsAreNearTheGolden) {
  Unit narrow(kMatrices, at::kBFloat16), wide(kMatrices);
  narrow.run(*make_torch_muon({}, {narrow.values}, {narrow.gradients}, whole_tensors()),
             {.lr = kLr, .weight_decay = 0.1});
  wide.run(*make_torch_muon({}, {wide.values}, {wide.gradients}, whole_tensors()),
           {.lr = kLr, .weight_decay = 0.1});
  const at::Tensor apart = (narrow.values.buffer.to(at::kFloat) - wide.values.buffer).abs();
  EXPECT_LT(apart.mean().item<double>(), 4e-3);  // weights are about 1
  EXPECT_LT(apart.max().item<double>(), 4e-2);
}

/// Matrices are dealt out to ranks, whatever part of them these hold.
TEST(MuonTest, ARankWithoutMatricesComputesThemAsItsPeers) {
  const auto computed_by = [](const std::vector<std::string>& names) {
    at::Tensor result;
    const auto deals_out_one = [&](const std::vector<FlatSegment>&) -> tensor::MatrixStepper {
      return [&](const tensor::MatrixStep& step) {
        result = step.compute(golden().read("square").to(at::kFloat));
      };
    };
    Unit unit(names, at::kBFloat16);
    make_muon(dion_config(), {unit.values}, {unit.gradients}, {kRoles, deals_out_one})
        ->step({.lr = kLr});
    return result;
  };
  EXPECT_TRUE(computed_by({"bias"}).equal(computed_by({"bias", "tall"})));
}

TEST(MuonTest, TorchsTakesNoVectors) {
  const Unit unit(kAll);
  const std::string text = test::error_of<UserError>(
      [&] { make_torch_muon({}, {unit.values}, {unit.gradients}, whole_tensors()); });
  EXPECT_TRUE(
      text.starts_with("torch.optim.Muon takes matrices alone, and bias has 1 dimension(s)"))
      << text;
}

TEST(OrthogonalizeTest, BringsSingularValuesNearOne) {
  const auto singular = [](const at::Tensor& matrix) {
    const at::Tensor of =
        kernels::orthogonalize(matrix, {.coefficients = {kernels::kPolarExpressCoefficients.begin(),
                                                         kernels::kPolarExpressCoefficients.end()},
                                        .norm_factor = 1.02});
    EXPECT_EQ(of.sizes(), matrix.sizes());
    return at::linalg_svdvals(of);
  };
  at::manual_seed(3);
  for (const at::Tensor& matrix : {at::randn({40, 12}), at::randn({12, 40})}) {
    const at::Tensor values = singular(matrix);
    EXPECT_NEAR(values.max().item<double>(), 1, 0.2);
    EXPECT_NEAR(values.min().item<double>(), 1, 0.2);
  }
  EXPECT_EQ(singular(at::zeros({4, 6})).max().item<double>(), 0);
}

}  // namespace
}  // namespace automodel::optim
