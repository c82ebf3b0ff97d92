// What torch.autocast would compute in 16 bits, and what it would not, in every family.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "kernels/norm.h"
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

class AutocastModelsTest : public testing::TestWithParam<const char*> {};

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
    EXPECT_NEAR(loss.item<double>() / wanted, 1, dtype == at::kHalf ? 1e-3 : 5e-3);
    loss.backward();
    for (const auto& item : model->named_parameters()) {
      if (!item.value().requires_grad()) continue;
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_EQ(item.value().grad().scalar_type(), at::kFloat) << item.key();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Golden, AutocastModelsTest,
    testing::Values("llama_default", "qwen3_tied", "gemma2", "gemma3_text", "gpt2",
                    "granite_biases", "phi3_default", "olmo2_bias_tied", "qwen3_moe", "mixtral",
                    "glm4_moe", "gpt_oss", "deepseek_v3", "starcoder2", "minimax_m2",
                    "glm4_moe_lite", "glm4", "ministral3", "qwen3_next", "qwen3_5", "nemotron_h",
                    "falcon_h1", "cohere", "phi", "mistral4", "deepseek_v32_padding", "kimi_linear",
                    "hunyuan_v1_dense", "deepseek_v4", "olmo_clip_tied", "olmo3",
                    "olmoe_clip_padding", "stablelm_parallel_padding", "nemotron", "arcee",
                    "exaone4", "gpt_neox", "deepseek_v2", "cohere_qk_norm", "phi_qk_layernorm",
                    "dots1", "hy_v3_biases", "step3p5", "baichuan", "laguna_elements_padding",
                    "mimo_v2_flash", "gemma4", "muse_glimmer", "llada", "llada2_moe"),
    [](const auto& info) { return std::string(info.param); });

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
