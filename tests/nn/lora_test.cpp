#include "nn/lora.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "core/text.h"
#include "kernels/base/fused.h"
#include "nn/layers.h"
#include "tensor/random.h"

namespace automodel::nn {
namespace {

constexpr int64_t kIn = 12;
constexpr int64_t kOut = 20;  // of matrices of 8, 4 and 8 rows

/// A layer of three matrices, adapters on the first and the last, all values random.
std::shared_ptr<Linear> adapted_layer(LoraOptions options, bool has_bias = false) {
  at::manual_seed(5);
  auto layer = std::make_shared<Linear>(
      LinearOptions{
          .in_features = kIn, .out_features = kOut, .has_bias = has_bias, .groups = {8, 4, 8}},
      at::kFloat);
  for (at::Tensor& parameter : layer->parameters()) parameter.set_requires_grad(false);
  options.rank = 3;
  options.scale = 2.5;
  options.parts = {{"first", {0, 8}}, {"last", {12, 8}}};
  layer->add_lora(options);
  for (at::Tensor& parameter : layer->parameters()) {
    parameter.set_data(at::randn(parameter.sizes()));
  }
  return layer;
}

at::Tensor parameter(const Linear& layer, const char* name) {
  return layer.named_parameters()[name];
}

/// The weight of the layer with its adapters merged.
at::Tensor merged_weight(const Linear& layer) {
  const at::Tensor a = parameter(layer, "lora_A").detach();
  const at::Tensor b = parameter(layer, "lora_B").detach();
  at::Tensor weight = layer.weight().detach().clone();
  weight.narrow(0, 0, 8).add_(at::mm(b.narrow(0, 0, 8), a.narrow(0, 0, 3)) * 2.5);
  weight.narrow(0, 12, 8).add_(at::mm(b.narrow(0, 8, 8), a.narrow(0, 3, 3)) * 2.5);
  return weight;
}

TEST(LoraTest, AddsToTheOutputsOfItsMatricesAlone) {
  for (const bool is_plain : {false, true}) {
    for (const bool has_bias : {false, true}) {
      const kernels::PlainPathScope path(is_plain);
      const auto layer = adapted_layer({}, has_bias);
      const at::Tensor x = at::randn({2, 5, kIn});
      at::Tensor wanted = at::linear(x, merged_weight(*layer));
      if (has_bias) wanted = wanted + parameter(*layer, "bias");
      EXPECT_TRUE(at::allclose(layer->forward(x), wanted, 1e-5, 1e-4));
    }
  }
}

TEST(LoraTest, GradientsAreThoseOfPlainProducts) {
  std::vector<std::vector<at::Tensor>> gradients;
  const at::Tensor weights = at::randn({2, 5, kOut});
  for (const bool is_plain : {false, true}) {
    const kernels::PlainPathScope path(is_plain);
    const auto layer = adapted_layer({});
    const at::Tensor x = at::arange(2 * 5 * kIn).view({2, 5, kIn}).sin().requires_grad_();
    (layer->forward(x) * weights).sum().backward();
    EXPECT_FALSE(layer->weight().grad().defined()) << "the layer's own weight is frozen";
    gradients.push_back(
        {x.grad(), parameter(*layer, "lora_A").grad(), parameter(*layer, "lora_B").grad()});
  }
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    ASSERT_TRUE(gradients[0][i].defined()) << i;
    EXPECT_TRUE(at::allclose(gradients[0][i], gradients[1][i], 1e-5, 1e-4)) << i;
  }
}

TEST(LoraTest, AdaptersOfOneDtypeWorkOnALayerOfAnother) {
  LoraOptions options;
  options.dtype = at::kFloat;
  const auto layer = adapted_layer(options);
  layer->named_parameters()["weight"].set_data(layer->weight().to(at::kBFloat16));
  const at::Tensor out = layer->forward(at::randn({1, 4, kIn}).to(at::kBFloat16));
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
  out.sum().backward();
  EXPECT_EQ(parameter(*layer, "lora_B").grad().scalar_type(), at::kFloat);
}

/// What an adapter adds, element by element: without dropout, and with it.
std::pair<at::Tensor, at::Tensor> updates(DropoutPosition position, double p, DropoutKey key) {
  const at::Tensor x = at::ones({64, 32, kIn});
  LoraOptions options;
  const auto plain = adapted_layer(options);
  options.dropout = p;
  options.dropout_position = position;
  options.dropout_key = std::make_shared<DropoutKey>(key);
  const auto dropping = adapted_layer(options);
  const at::Tensor base = at::linear(x, plain->weight());
  return {(plain->forward(x) - base).detach(), (dropping->forward(x) - base).detach()};
}

TEST(LoraTest, DropoutOfTheOutputZeroesAndScales) {
  const double p = 0.25;
  const auto [whole, dropped] = updates(DropoutPosition::kPost, p, {1, 2, 3});
  const at::Tensor of_first = dropped.narrow(-1, 0, 8);
  const at::Tensor is_zero = of_first.abs().lt(1e-4);
  const double share = is_zero.to(at::kFloat).mean().item<double>();
  EXPECT_NEAR(share, p, 4 * std::sqrt(p * (1 - p) / static_cast<double>(is_zero.numel())));
  const at::Tensor kept = at::where(is_zero, of_first, whole.narrow(-1, 0, 8) / (1 - p));
  EXPECT_TRUE(at::allclose(of_first, kept, 1e-4, 1e-3));
  EXPECT_TRUE(at::allclose(dropped.narrow(-1, 8, 4), at::zeros({64, 32, 4}), 0, 1e-4))
      << "a matrix without an adapter";
}

TEST(LoraTest, DropoutOfTheInputKeepsTheMean) {
  const auto [whole, dropped] = updates(DropoutPosition::kPre, 0.5, {1, 2, 3});
  const at::Tensor mean = dropped.mean(at::IntArrayRef{0, 1});
  const at::Tensor deviation =
      dropped.std(at::IntArrayRef{0, 1}, /*unbiased=*/true) / std::sqrt(64.0 * 32.0);
  EXPECT_TRUE(
      (mean - whole.mean(at::IntArrayRef{0, 1})).abs().le(5 * deviation + 1e-4).all().item<bool>());
}

TEST(LoraTest, DropoutIsKeyed) {
  const at::Tensor first = updates(DropoutPosition::kPost, 0.5, {1, 2, 3}).second;
  EXPECT_TRUE(at::equal(first, updates(DropoutPosition::kPost, 0.5, {1, 2, 3}).second));
  for (const DropoutKey& other : {DropoutKey{2, 2, 3}, DropoutKey{1, 3, 3}, DropoutKey{1, 2, 4}}) {
    EXPECT_FALSE(at::equal(first, updates(DropoutPosition::kPost, 0.5, other).second));
  }
}

TEST(LoraTest, EvaluationDropsNothing) {
  LoraOptions options;
  options.dropout = 0.5;
  options.dropout_key = std::make_shared<DropoutKey>();
  const auto layer = adapted_layer(options);
  layer->eval();
  const at::Tensor x = at::randn({2, 5, kIn});
  EXPECT_TRUE(at::allclose(layer->forward(x), at::linear(x, merged_weight(*layer)), 1e-5, 1e-4));
}

TEST(LoraTest, DoraGivesRowsTheirTrainedLengths) {
  LoraOptions options;
  options.has_magnitude = true;
  const auto layer = adapted_layer(options);
  const at::Tensor merged = merged_weight(*layer);
  const at::Tensor magnitude = parameter(*layer, "lora_magnitude").detach();
  at::Tensor wanted = merged.clone();
  for (const auto& [row, first] : {std::pair<int64_t, int64_t>{0, 0}, {8, 12}}) {
    const at::Tensor rows = merged.narrow(0, first, 8);
    wanted.narrow(0, first, 8)
        .copy_(rows * (magnitude.narrow(0, row, 8) / rows.norm(2, 1)).unsqueeze(1));
  }
  const at::Tensor x = at::randn({2, 5, kIn});
  EXPECT_TRUE(at::allclose(layer->forward(x), at::linear(x, wanted), 1e-4, 1e-4));
}

/// The layer's own product is not dropped, as in PEFT.
TEST(LoraTest, DoraOfADroppedInputDropsWhatItAddsAlone) {
  LoraOptions options;
  options.has_magnitude = true;
  options.dropout = 0.4;
  options.dropout_position = DropoutPosition::kPre;
  options.dropout_key = std::make_shared<DropoutKey>(DropoutKey{1, 2, 3});
  const auto layer = adapted_layer(options, /*has_bias=*/true);
  const at::Tensor x = at::randn({2, 5, kIn});
  const at::Tensor merged = merged_weight(*layer);
  at::Tensor wanted = at::linear(x, layer->weight().detach(), parameter(*layer, "bias").detach());
  for (const auto& [site, row, first] :
       {std::tuple<const char*, int64_t, int64_t>{"first", 0, 0}, {"last", 8, 12}}) {
    const tensor::RandomKey key(1, cat("dropout/2/3/", site));
    const at::Tensor dropped =
        x * tensor::dropout_kept(key, 0, x.numel(), options.dropout).view(x.sizes()) / 0.6;
    const at::Tensor own = layer->weight().detach().narrow(0, first, 8);
    const at::Tensor rows = merged.narrow(0, first, 8);
    const at::Tensor magnitude = parameter(*layer, "lora_magnitude").detach().narrow(0, row, 8);
    const at::Tensor factors = magnitude / rows.norm(2, 1);
    const at::Tensor added = at::linear(dropped, rows * factors.unsqueeze(1) - own);
    wanted.narrow(-1, first, 8).add_(added);
  }
  EXPECT_TRUE(at::allclose(layer->forward(x), wanted, 1e-4, 1e-4));
}

/// The mask that a layer of ones gets when it holds some of the tokens, inputs or outputs, by
/// what it adds: of 2 sequences of 6 tokens.
struct HeldMask {
  DropoutPosition position;
  tensor::SequencePart sequence = {6, 6, {{0, 6}}};
  int64_t sequence_part = 0;
  int64_t num_tokens = 6;

  std::shared_ptr<Linear> layer() const {
    LoraOptions options;
    options.rank = 1;
    options.dropout = 0.5;
    options.dropout_position = position;
    options.dropout_key =
        std::make_shared<DropoutKey>(DropoutKey{1, 2, 3, 2, sequence, sequence_part});
    options.parts = {{"all", {0, 8}}};
    auto made =
        std::make_shared<Linear>(LinearOptions{.in_features = 8, .out_features = 8}, at::kFloat);
    made->weight().set_requires_grad(false);
    made->add_lora(options);
    return made;
  }

  /// [2, num_tokens, outputs]; the weight is zero, and every token has its own numbers.
  at::Tensor added(const Linear& made, int64_t first, int64_t count, int64_t num_outputs) const {
    made.named_parameters()["weight"].set_data(at::zeros({num_outputs, count}));
    made.named_parameters()["lora_A"].set_data(
        at::arange(1, 9).view({1, 8}).to(at::kFloat).narrow(1, first, count));
    made.named_parameters()["lora_B"].set_data(at::ones({num_outputs, 1}));
    return made.forward(at::ones({2, num_tokens, count})).detach();
  }

  at::Tensor whole() const { return added(*layer(), 0, 8, 8); }
};

TEST(LoraTest, TokensKeepTheirMasksWhereverTheyAre) {
  for (const DropoutPosition position : {DropoutPosition::kPre, DropoutPosition::kPost}) {
    const at::Tensor whole = HeldMask{position}.whole();
    // Of context parallelism's rank: the first and the last positions.
    const HeldMask ends{position, {6, 6, {{0, 1}, {5, 1}}}, 0, 2};
    EXPECT_TRUE(
        at::equal(ends.whole(), at::cat({whole.narrow(1, 0, 1), whole.narrow(1, 5, 1)}, 1)));
    // A run of the tokens of a rank of sequence parallelism.
    const HeldMask run{position, {6, 6, {{0, 6}}}, 1, 3};
    EXPECT_TRUE(at::equal(run.whole(), whole.narrow(1, 3, 3)));
    // Both: the second half of positions 0, 1, 4, 5.
    const HeldMask both{position, {6, 6, {{0, 2}, {4, 2}}}, 1, 2};
    EXPECT_TRUE(at::equal(both.whole(), whole.narrow(1, 4, 2)));
  }
}

TEST(LoraTest, FeaturesKeepTheirMasksWhereverTheyAre) {
  const HeldMask post{DropoutPosition::kPost};
  const auto outputs = post.layer();
  outputs->loras()[0]->keep_outputs({{{0, 4}, {{2, 2}, {6, 2}}}});
  const at::Tensor whole = post.whole();
  EXPECT_TRUE(at::equal(post.added(*outputs, 0, 8, 4),
                        at::cat({whole.narrow(2, 2, 2), whole.narrow(2, 6, 2)}, 2)));

  const HeldMask pre{DropoutPosition::kPre};
  at::Tensor sum = at::zeros({2, 6, 8});
  for (const int64_t first : {0, 4}) {
    const auto inputs = pre.layer();
    inputs->loras()[0]->keep_inputs({first, 4}, nullptr);
    sum = sum + pre.added(*inputs, first, 4, 8);
  }
  EXPECT_TRUE(at::allclose(sum, pre.whole()));
}

}  // namespace
}  // namespace automodel::nn
