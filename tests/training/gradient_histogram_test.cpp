#include "training/gradient_histogram.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace automodel::training {
namespace {

using testing::ElementsAre;

/// The gradients of an engine on one rank.
class HeldGradients final : public distributed::Engine {
 public:
  /// A tensor of each name, in one buffer.
  explicit HeldGradients(const std::vector<std::pair<std::string, at::Tensor>>& tensors)
      : Engine(comm::ProcessGroup::solo()) {
    tensor::FlatShard shard;
    std::vector<at::Tensor> values;
    int64_t offset = 0;
    for (const auto& [name, value] : tensors) {
      shard.segments.push_back({name, tensor::ShardSpec::whole(value.sizes().vec()), offset});
      offset += value.numel();
      values.push_back(value.flatten());
    }
    shard.buffer = at::cat(values);
    gradients_.push_back(shard);
  }
  distributed::HeldPart held_part() const override { return {}; }
  void begin_micro_batch(bool) override {}
  void end_micro_batch() override {}
  void zero_gradients() override {}
  void reduce_gradients() override {}
  double gradient_norm() const override { return 0; }
};

std::vector<LayerHistogram> histograms_of(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  return gradient_histograms(HeldGradients(tensors), comm::ProcessGroup::solo());
}

std::vector<std::pair<double, double>> used(const Histogram& histogram) {
  std::vector<std::pair<double, double>> buckets;
  for (const Histogram::Bucket& bucket : histogram.buckets) {
    if (bucket.count > 0) buckets.emplace_back(bucket.limit, bucket.count);
  }
  return buckets;
}

TEST(GradientHistogramTest, LayersEndAtTheirNumber) {
  EXPECT_EQ(layer_of("model.layers.3.self_attn.q_proj.weight"), "model.layers.3");
  EXPECT_EQ(layer_of("transformer.h.11.attn.c_attn.bias"), "transformer.h.11");
  EXPECT_EQ(layer_of("model.layers.2.mlp.experts.7.up_proj.weight"), "model.layers.2");
  EXPECT_EQ(layer_of("lm_head.weight"), "lm_head");
  EXPECT_EQ(layer_of("model.embed_tokens.weight"), "model.embed_tokens");
  EXPECT_EQ(layer_of("scale"), "scale");
}

TEST(GradientHistogramTest, BucketsAreAQuarterOfAnOctaveWide) {
  const auto all = histograms_of({{"a.weight", at::tensor({1.0F, 1.2F, 1.25F, 1.99F, 2.0F})}});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].layer, "a");
  EXPECT_THAT(used(all[0].histogram), ElementsAre(std::pair(1.25, 2.0), std::pair(1.5, 1.0),
                                                  std::pair(2.0, 1.0), std::pair(2.5, 1.0)));
}

TEST(GradientHistogramTest, NegativeNumbersComeFirstAndSmallOnesBetween) {
  const auto all = histograms_of(
      {{"a.weight", at::tensor({0.0F, -0.0F, 1e-20F, -1e-13F, -1.0F, -1.1F, -3.5F, 0.5F})}});
  const Histogram& found = all.at(0).histogram;
  EXPECT_THAT(used(found), ElementsAre(std::pair(-3.5, 1.0), std::pair(-1.0, 2.0),
                                       std::pair(0x1p-40, 4.0), std::pair(0.625, 1.0)));
  EXPECT_EQ(found.count, 8);
  EXPECT_EQ(found.min, -3.5);
  EXPECT_EQ(found.max, 0.5);
  EXPECT_FLOAT_EQ(static_cast<float>(found.sum), -5.1F);
  EXPECT_FLOAT_EQ(static_cast<float>(found.sum_of_squares), 1 + 1.21F + 12.25F + 0.25F);
}

TEST(GradientHistogramTest, TensorsOfALayerAreTogetherInAnyDtype) {
  const auto all = histograms_of({{"model.layers.0.a.weight", at::ones({2, 3})},
                                  {"model.layers.0.b.weight", at::ones({4})},
                                  {"lm_head.weight", at::full({5}, 2.0)}});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].layer, "lm_head");
  EXPECT_EQ(all[0].histogram.count, 5);
  EXPECT_EQ(all[1].layer, "model.layers.0");
  EXPECT_EQ(all[1].histogram.count, 10);
  const auto half = histograms_of({{"a.weight", at::full({7}, 3.0, at::kBFloat16)}});
  EXPECT_THAT(used(half[0].histogram), ElementsAre(std::pair(3.5, 7.0)));
}

TEST(GradientHistogramTest, NumbersThatAreNotFiniteAreLeftOut) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto all =
      histograms_of({{"a.weight", at::tensor({1.0F, kInfinity, -kInfinity, NAN, 3e38F, -3e38F})},
                     {"b.weight", at::full({2}, NAN)}});
  EXPECT_EQ(all[0].histogram.count, 3);
  EXPECT_EQ(all[0].histogram.max, double{3e38F});
  EXPECT_EQ(all[0].histogram.min, double{-3e38F});
  EXPECT_TRUE(std::isfinite(all[0].histogram.sum_of_squares));
  EXPECT_EQ(all[0].histogram.buckets.back().limit, double{std::numeric_limits<float>::max()});
  EXPECT_EQ(all[1].histogram.count, 0);
  EXPECT_EQ(all[1].histogram.max, 0);
  EXPECT_TRUE(all[1].histogram.buckets.empty());
}

/// More than are counted at once.
TEST(GradientHistogramTest, LargeTensorsAreCountedWhole) {
  const at::Tensor values = at::arange(3'000'000, at::kFloat);
  const Histogram found = histograms_of({{"a.weight", values}}).at(0).histogram;
  EXPECT_EQ(found.count, 3e6);
  EXPECT_EQ(found.max, 2999999);
  double below = 0;
  for (const Histogram::Bucket& bucket : found.buckets) {
    below += bucket.count;
    if (bucket.limit == 0x1p20) break;
  }
  EXPECT_EQ(below, 0x1p20);
}

}  // namespace
}  // namespace automodel::training
