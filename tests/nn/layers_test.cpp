#include "nn/layers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nn/rope_tables.h"
#include "nn/unit_hook.h"
#include "tensor/shard_spec.h"

namespace automodel {
namespace {

/// Gives every parameter memory with values that depend on its position.
void fill(torch::nn::Module& module) {
  double seed = 0.3;
  for (const auto& item : module.named_parameters()) {
    at::Tensor parameter = item.value();
    const at::Tensor values = at::arange(parameter.numel(), at::kFloat).mul(seed).sin();
    parameter.set_data(values.view(parameter.sizes()));
    seed += 0.4;
  }
}

TEST(Linear, IsBuiltWithoutMemoryAndWithGradients) {
  const nn::Linear linear({.in_features = 3, .out_features = 2, .has_bias = true}, at::kFloat);
  for (const auto& item : linear.named_parameters()) {
    EXPECT_TRUE(tensor::is_placeholder(item.value())) << item.key();
    EXPECT_TRUE(item.value().requires_grad()) << item.key();
  }
  EXPECT_EQ(linear.named_parameters().keys(), (std::vector<std::string>{"weight", "bias"}));
}

TEST(Linear, MultipliesByTheTransposedWeightAndAddsTheBias) {
  nn::Linear linear({.in_features = 3, .out_features = 2, .has_bias = true}, at::kFloat);
  fill(linear);
  const at::Tensor x = at::arange(12, at::kFloat).view({2, 2, 3});
  const at::Tensor expected =
      at::matmul(x, linear.weight().t()) + linear.named_parameters()["bias"];
  EXPECT_TRUE(at::allclose(linear.forward(x), expected));
}

TEST(Linear, TransposedStorageGivesTheSameProduct) {
  nn::Linear plain({.in_features = 3, .out_features = 2}, at::kFloat);
  nn::Linear transposed({.in_features = 3, .out_features = 2, .is_transposed = true}, at::kFloat);
  fill(plain);
  fill(transposed);
  EXPECT_EQ(transposed.weight().sizes(), (at::IntArrayRef{3, 2}));
  at::Tensor(transposed.weight()).set_data(plain.weight().detach().t().contiguous());
  const at::Tensor x = at::arange(6, at::kFloat).view({2, 3});
  EXPECT_TRUE(at::allclose(plain.forward(x), transposed.forward(x)));
}

TEST(Embedding, PaddingRowGetsNoGradientFromTheLookup) {
  nn::Embedding embedding({.num_rows = 4, .dim = 2, .padding_idx = 1}, at::kFloat);
  fill(embedding);
  const at::Tensor ids = at::tensor({0, 1, 1, 3}, at::kLong).view({1, 4});
  const at::Tensor out = embedding.forward(ids);
  EXPECT_TRUE(at::equal(out[0][1], embedding.weight()[1]));
  out.sum().backward();
  const at::Tensor gradient = embedding.weight().grad().sum(1);
  EXPECT_TRUE(at::equal(gradient, at::tensor({2.0f, 0.0f, 0.0f, 2.0f})));
}

TEST(RmsNorm, AddGivesTheSumAndItsNorm) {
  nn::RmsNorm norm(4, {}, at::kFloat);
  fill(norm);
  const at::Tensor x = at::arange(8, at::kFloat).view({2, 4});
  const at::Tensor residual = at::ones({2, 4});
  const auto [sum, normed] = norm.add(x, residual);
  EXPECT_TRUE(at::equal(sum, x + residual));
  EXPECT_TRUE(at::allclose(normed, norm.forward(x + residual)));
}

TEST(LayerNorm, AddGivesTheSumAndItsNorm) {
  nn::LayerNorm norm(4, {}, at::kFloat);
  fill(norm);
  const at::Tensor x = at::arange(8, at::kFloat).view({2, 4});
  const at::Tensor residual = at::ones({2, 4});
  const auto [sum, normed] = norm.add(x, residual);
  EXPECT_TRUE(at::equal(sum, x + residual));
  EXPECT_TRUE(at::allclose(normed, norm.forward(x + residual)));
}

TEST(RopeTables, GrowWithTheSequenceAndAreKeptForShorterOnes) {
  nn::RopeOptions options;
  options.rotary_dim = 4;
  nn::RopeTables tables(options);
  const at::Tensor first = tables.table(8, at::kCPU).cos;
  EXPECT_EQ(first.sizes(), (at::IntArrayRef{8, 2}));
  EXPECT_TRUE(tables.table(5, at::kCPU).cos.is_same(first));
  const at::Tensor longer = tables.table(12, at::kCPU).cos;
  EXPECT_EQ(longer.size(0), 12);
  EXPECT_TRUE(at::equal(longer.narrow(0, 0, 8), first));
  EXPECT_FLOAT_EQ(longer[3][0].item<float>(), std::cos(3.0f));
}

class Doubling final : public nn::UnitBehavior {
 public:
  nn::TensorList run(const nn::TensorList& inputs, const nn::UnitBody& body) override {
    nn::TensorList out = body(inputs);
    for (at::Tensor& tensor : out) tensor = tensor * 2;
    return out;
  }
};

class AddingOne final : public nn::UnitBehavior {
 public:
  nn::TensorList run(const nn::TensorList& inputs, const nn::UnitBody& body) override {
    nn::TensorList out = body(inputs);
    for (at::Tensor& tensor : out) tensor = tensor + 1;
    return out;
  }
};

TEST(UnitHook, TheLastBehaviorInstalledIsTheOutermost) {
  nn::UnitHook hook;
  const auto identity = [](const nn::TensorList& in) { return in; };
  EXPECT_FALSE(hook.has_behavior());
  EXPECT_EQ(hook({at::tensor(3.0f)}, identity)[0].item<float>(), 3.0f);
  hook.install(std::make_unique<Doubling>());
  hook.install(std::make_unique<AddingOne>());
  EXPECT_EQ(hook({at::tensor(3.0f)}, identity)[0].item<float>(), 7.0f);
}

}  // namespace
}  // namespace automodel
