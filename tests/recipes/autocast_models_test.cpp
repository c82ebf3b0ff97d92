// What torch.autocast would compute in 16 bits, and what it would not, in every family.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "kernels/layers/norm.h"
#include "models/golden_families.h"
#include "models/golden_model.h"
#include "models/parity.h"
#include "nn/product_dtype.h"

namespace automodel::recipes {
namespace {

/// Attention that notes the dtypes it is given.
class NotedAttention final : public nn::AttentionCore {
 public:
  explicit NotedAttention(std::set<at::ScalarType>& seen) : seen_(seen) {}

  kernels::AttentionResult attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const kernels::AttentionOptions& options) override {
    for (const at::Tensor& operand : {q, k, v}) seen_.insert(operand.scalar_type());
    return kernels::causal_attention(q, k, v, options);
  }

 private:
  std::set<at::ScalarType>& seen_;
};

/// Goldens that choose other experts, or other keys, in bfloat16 than in float32.
const std::set<std::string> kChoosesOthers = {"gemma4_everything_padding", "glm_moe_dsa",
                                              "hunyuan_v1_moe"};

/// How far a golden's loss may be from float32's in a narrow dtype: where choices differ, as far as
/// transformers' own in bfloat16.
double most_off(const std::string& golden, at::ScalarType dtype) {
  if (dtype == at::kHalf) return 1e-3;
  if (!kChoosesOthers.contains(golden)) return 5e-3;
  static const Json known = Json::parse_file(test::source_file("tests/golden/bfloat16.json"));
  return known.at("errors").at(golden).at("token_loss").as_double();
}

class AutocastModelsTest : public testing::TestWithParam<std::string> {};

TEST_P(AutocastModelsTest, ProductsAndAttentionAreNarrowNormsAndLossAreNot) {
  using Dtypes = std::set<at::ScalarType>;
  const tensor::Batch batch = models::parity_batch(
      test::read_trusted_safetensors(test::golden_file(GetParam(), "reference.safetensors")));
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const auto exact = test::load_golden_model(GetParam());
    const auto model = test::load_golden_model(GetParam());
    nn::set_product_dtype(*model, dtype);
    Dtypes attended;
    model->set_attention_core(std::make_shared<NotedAttention>(attended));
    const at::Tensor hidden = model->hidden_states(batch);
    EXPECT_EQ(hidden.scalar_type(), at::kFloat);
    EXPECT_EQ(attended, Dtypes({dtype}));
    EXPECT_EQ(model->logits(hidden).scalar_type(), dtype);
    const at::Tensor loss = model->loss(batch, 10.0, -100);
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    const double wanted = exact->loss(batch, 10.0, -100).item<double>();
    EXPECT_NE(loss.item<double>(), wanted);
    EXPECT_NEAR(loss.item<double>() / wanted, 1, most_off(GetParam(), dtype));
    loss.backward();
    for (const auto& item : model->named_parameters()) {
      if (!item.value().requires_grad()) continue;
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_EQ(item.value().grad().scalar_type(), at::kFloat) << item.key();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, AutocastModelsTest, testing::ValuesIn(test::golden_families()),
                         [](const auto& info) { return info.param; });

TEST(ProductDtypeTest, OnlyFloatsOfUpTo32BitsAreCast) {
  nn::ProductDtype narrowed;
  EXPECT_EQ(narrowed.of(at::ones({2})).scalar_type(), at::kFloat);
  narrowed.set(at::kBFloat16);
  EXPECT_EQ(narrowed.of(at::ones({2})).scalar_type(), at::kBFloat16);
  EXPECT_EQ(narrowed.of(at::ones({2}, at::kHalf)).scalar_type(), at::kBFloat16);
  EXPECT_EQ(narrowed.of(at::ones({2}, at::kDouble)).scalar_type(), at::kDouble);
  EXPECT_EQ(narrowed.of(at::ones({2}, at::kLong)).scalar_type(), at::kLong);
  EXPECT_FALSE(narrowed.of({}).defined());
}

TEST(WideNormTest, ANormGivesTheWiderOfItsInputsAndItsWeightsDtype) {
  const auto dtype_of = [](at::ScalarType x, at::ScalarType weight) {
    const at::Tensor in = at::rand({3, 8}).to(x);
    const at::Tensor scale = at::ones({8}).to(weight);
    const at::ScalarType rms = kernels::rms_norm(in, scale, {}).scalar_type();
    EXPECT_EQ(kernels::layer_norm(in, scale, scale, 1e-5).scalar_type(), rms);
    EXPECT_EQ(kernels::add_rms_norm(in, in, scale, {}).second.scalar_type(), rms);
    return rms;
  };
  EXPECT_EQ(dtype_of(at::kFloat, at::kBFloat16), at::kFloat);
  EXPECT_EQ(dtype_of(at::kBFloat16, at::kFloat), at::kFloat);
  EXPECT_EQ(dtype_of(at::kBFloat16, at::kBFloat16), at::kBFloat16);
  const auto [sum, normed] = kernels::add_rms_norm(at::ones({2, 4}, at::kBFloat16),
                                                   at::full({2, 4}, 1e-3), at::ones({4}), {});
  EXPECT_EQ(sum.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(sum, at::full({2, 4}, 1.001)));
}

}  // namespace
}  // namespace automodel::recipes
