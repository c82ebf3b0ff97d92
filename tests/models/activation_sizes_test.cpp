#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "kernels/base/fused.h"
#include "kernels/host_flash.h"
#include "models/golden_model.h"
#include "support/allocation_counter.h"

namespace automodel {
namespace {

constexpr int64_t kSequences = 2, kLength = 96;

struct CountedBytes {
  int64_t kept = 0;  ///< when the loss is there
  int64_t peak = 0;
  nn::ActivationSizes planned;
};

/// Turns oneDNN off: on CPUs with AVX-512 that have no products of bfloat16 it copies operands,
/// which no device does.
class WithoutOneDnn final {
 public:
  explicit WithoutOneDnn(bool is_off) : was_on_(at::globalContext().userEnabledMkldnn()) {
    if (is_off) at::globalContext().setUserEnabledMkldnn(false);
  }
  ~WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(was_on_); }
  WithoutOneDnn(const WithoutOneDnn&) = delete;
  WithoutOneDnn& operator=(const WithoutOneDnn&) = delete;

 private:
  bool was_on_;
};

/// A family's tiny model with another number of layers.
Json tiny_config(const std::string& family, int64_t num_layers) {
  Json config = Json::parse_file(test::source_file(cat("configs/tiny/", family, "/config.json")));
  config[config.contains("n_layer") ? "n_layer" : "num_hidden_layers"] = num_layers;
  config.erase("layer_types");
  return config;
}

/// Forward and backward of a model.
CountedBytes count_bytes(const Json& config, at::ScalarType dtype, bool on_device, bool is_plain) {
  at::set_num_threads(1);
  const auto model = models::build_causal_lm(config, dtype);
  test::give_memory(*model);
  for (at::Tensor parameter : model->parameters()) {
    parameter.mutable_grad() = at::zeros_like(parameter);
  }
  model->train();
  std::optional<kernels::device::HostFlashScope> kernels;
  if (on_device) kernels.emplace();
  tensor::Batch batch;
  batch.input_ids = at::arange(kSequences * kLength, at::kLong).view({kSequences, kLength});
  batch.labels = batch.input_ids.clone();
  const WithoutOneDnn products(on_device);
  const kernels::PlainPathScope path(is_plain);
  const auto counter = std::make_shared<test::AllocationCounter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  CountedBytes counted;
  {
    const at::Tensor loss = model->loss(batch, 1.0, -100);
    counted.kept = counter->live();
    loss.backward();
  }
  counted.peak = counter->peak();
  nn::ActivationShape shape{kSequences, kLength, static_cast<int64_t>(c10::elementSize(dtype))};
  shape.on_device = on_device;
  shape.is_plain = is_plain;
  counted.planned = model->activation_sizes(shape);
  return counted;
}

struct Case {
  const char* family;
  at::ScalarType dtype;
  bool on_device = false;  ///< by a device's kernels, which take their turns on the host
  bool is_plain = false;   ///< plain operations, on the CPU
};

class ActivationSizesTest : public testing::TestWithParam<Case> {};

TEST_P(ActivationSizesTest, ABlockKeepsWhatIsPlanned) {
  const auto [family, dtype, on_device, is_plain] = GetParam();
  const CountedBytes few = count_bytes(tiny_config(family, 2), dtype, on_device, is_plain);
  const CountedBytes many = count_bytes(tiny_config(family, 6), dtype, on_device, is_plain);
  const double block = static_cast<double>(many.kept - few.kept) / 4;
  // Scales of norms and masks, whose bytes do not grow with the model, may be missing.
  EXPECT_NEAR(static_cast<double>(many.planned.block_kept) / block, 1.0, 0.02) << block;
}

/// But of FlashAttention: what stands for it makes whole scores.
class ActivationPeaksTest : public testing::TestWithParam<Case> {};

TEST_P(ActivationPeaksTest, TheFullestMomentIsNearWhatIsPlanned) {
  const auto [family, dtype, on_device, is_plain] = GetParam();
  const CountedBytes counted = count_bytes(tiny_config(family, 6), dtype, on_device, is_plain);
  const nn::ActivationSizes& sizes = counted.planned;
  const int64_t blocks = sizes.embedding + 6 * sizes.block_kept;
  const int64_t peak = std::max(blocks + sizes.final_norm_kept + sizes.head_kept + sizes.logits,
                                blocks + sizes.block_backward);
  EXPECT_NEAR(static_cast<double>(peak) / static_cast<double>(counted.peak), 1.0, 0.05)
      << counted.peak;
}

/// A golden model wider, with layers of one kind, `num_layers` of them.
Json state_config(const std::string& golden, const char* layer, int64_t num_layers) {
  Json config = Json::parse_file(test::golden_file(golden, "config.json"));
  Json::Array types(static_cast<size_t>(num_layers), Json(layer));
  const bool is_mamba = config.contains("layers_block_type");
  config[is_mamba ? "layers_block_type" : "layer_types"] = Json(types);
  config.erase("mlp_layer_types");
  config["first_k_dense_replace"] = num_layers;
  config["num_hidden_layers"] = num_layers;
  config["hidden_size"] = int64_t{64};
  config["vocab_size"] = int64_t{256};
  return config;
}

/// A golden model wider, with `num_layers` layers.
Json wide_config(const std::string& golden, int64_t num_layers) {
  Json config = state_config(golden, "full_attention", num_layers);
  config["intermediate_size"] = int64_t{160};
  return config;
}

/// Holds what a block of a golden model keeps against the plan, in both dtypes.
void expect_planned_block(const std::string& golden) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const bool is_plain : {false, true}) {
      const CountedBytes few = count_bytes(wide_config(golden, 2), dtype, false, is_plain);
      const CountedBytes many = count_bytes(wide_config(golden, 6), dtype, false, is_plain);
      const double block = static_cast<double>(many.kept - few.kept) / 4;
      EXPECT_NEAR(static_cast<double>(many.planned.block_kept) / block, 1.0, 0.02)
          << golden << (is_plain ? " plain " : " ") << dtype << " " << block;
    }
  }
}

TEST(ActivationSizes, LatentProjectionsOfExpertsKeepTheirOutputs) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto count = [&](int64_t num_layers, const Json& latent_size) {
      Json config = state_config("nemotron_h_latent", "moe", num_layers);
      config["moe_latent_size"] = latent_size;
      return count_bytes(config, dtype, false, false);
    };
    const auto kept_more = [](const CountedBytes& many, const CountedBytes& few) {
      return static_cast<double>(many.kept - few.kept) / 4;
    };
    const Json latent(int64_t{48});
    const CountedBytes with = count(6, latent);
    const CountedBytes without = count(6, Json());
    const double counted = kept_more(with, count(2, latent)) - kept_more(without, count(2, Json()));
    const auto planned = static_cast<double>(with.planned.block_kept - without.planned.block_kept);
    EXPECT_NEAR(planned / counted, 1.0, 0.02) << planned << " " << counted;
  }
}

TEST(ActivationSizes, BranchesSideBySideKeepOneNormsResult) {
  expect_planned_block("cohere");
}

TEST(ActivationSizes, NormsOfBranchesSideBySideShareTheirInput) {
  expect_planned_block("gpt_neox");
}

TEST(ActivationSizes, LayerNormsOfHeadsKeepTheirInputs) {
  expect_planned_block("phi_qk_layernorm");
  expect_planned_block("cohere_qk_norm");
}

TEST(ActivationSizes, ABoundOfQueriesKeysAndValuesKeepsThem) {
  expect_planned_block("olmo_clip_tied");
}

/// The golden Step 3.5 wider, with `num_layers` layers that slide, all of experts or all dense.
Json step_config(int64_t num_layers, bool has_experts) {
  Json config = state_config("step3p5", "sliding_attention", num_layers);
  config["intermediate_size"] = int64_t{160};
  config["moe_layers_enum"] = std::string(has_experts ? "0,1,2,3,4,5" : "")
                                  .substr(0, static_cast<size_t>(2 * num_layers - 1));
  config["rope_theta"] = Json(1e4);
  for (const char* key : {"partial_rotary_factors", "swiglu_limits", "swiglu_limits_shared"}) {
    config.erase(key);
  }
  return config;
}

TEST(ActivationSizes, LayersKeepWhatTheirOwnHeadsAndTheGatesOfTheseNeed) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const bool is_plain : {false, true}) {
      const CountedBytes few = count_bytes(step_config(2, false), dtype, false, is_plain);
      const CountedBytes many = count_bytes(step_config(6, false), dtype, false, is_plain);
      const double block = static_cast<double>(many.kept - few.kept) / 4;
      EXPECT_NEAR(static_cast<double>(many.planned.block_kept) / block, 1.0, 0.02)
          << (is_plain ? "plain " : "") << dtype << " " << block;
    }
  }
}

/// A golden model wider, with `num_layers` dense layers of one kind of attention.
Json dense_config(const std::string& golden, const char* kind, int64_t num_layers) {
  Json config = state_config(golden, kind, num_layers);
  config["intermediate_size"] = int64_t{160};
  config["mlp_layer_types"] = Json(Json::Array(static_cast<size_t>(num_layers), Json("dense")));
  config["global_head_dim"] = int64_t{32};
  config["num_global_key_value_heads"] = int64_t{1};
  config["num_attention_heads_per_layer"] =
      Json(Json::Array(static_cast<size_t>(num_layers), Json(int64_t{4})));
  config.erase("per_layer_config");
  if (config.contains("num_kv_shared_layers")) config["num_kv_shared_layers"] = int64_t{0};
  config["vocab_size_per_layer_input"] = int64_t{256};
  return config;
}

TEST(ActivationSizes, ValuesAndGatesOfTheirOwnKeepWhatIsPlanned) {
  for (const auto& [golden, kind] : {std::pair("laguna", "sliding_attention"),
                                     {"laguna_elements_padding", "full_attention"},
                                     {"mimo_v2_flash", "sliding_attention"},
                                     {"gemma4_own_values_padding", "full_attention"},
                                     {"gemma4", "full_attention"},
                                     {"gemma4_moe", "full_attention"},
                                     {"gemma4_layer_inputs", "full_attention"}}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const bool is_plain : {false, true}) {
        if (is_plain && dtype == at::kFloat) continue;
        const CountedBytes few = count_bytes(dense_config(golden, kind, 2), dtype, false, is_plain);
        const CountedBytes many =
            count_bytes(dense_config(golden, kind, 6), dtype, false, is_plain);
        const double block = static_cast<double>(many.kept - few.kept) / 4;
        // What layers get besides the hidden states is made with the embedding.
        const double planned =
            static_cast<double>(many.planned.block_kept) +
            static_cast<double>(many.planned.embedding - few.planned.embedding) / 4;
        EXPECT_NEAR(planned / block, 1.0, 0.02)
            << golden << (is_plain ? " plain " : " ") << dtype << " " << block;
      }
    }
  }
}

TEST(ActivationSizes, NormsWithoutWeightsOfQueriesAndKeysKeepWhatIsPlanned) {
  const auto config_of_layers = [](int64_t num_layers) {
    Json config = Json::parse_file(test::golden_file("muse_glimmer", "config.json"));
    Json& text = config["text_config"];
    text["num_hidden_layers"] = num_layers;
    text["hidden_size"] = int64_t{64};
    text["vocab_size"] = int64_t{256};
    text["intermediate_size"] = int64_t{160};
    const auto count = static_cast<size_t>(num_layers);
    text["layer_types"] = Json(Json::Array(count, Json("full_attention")));
    text["layer_rope_theta"] = Json(Json::Array(count, Json(5e5)));
    return config;
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const CountedBytes few = count_bytes(config_of_layers(2), dtype, false, false);
    const CountedBytes many = count_bytes(config_of_layers(6), dtype, false, false);
    const double block = static_cast<double>(many.kept - few.kept) / 4;
    EXPECT_NEAR(static_cast<double>(many.planned.block_kept) / block, 1.0, 0.02)
        << dtype << " " << block;
  }
}

/// Bounds of routed experts are made again in backward, those of MLPs and shared experts kept.
TEST(ActivationSizes, BoundsOfGatedActivationsAreKept) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const bool has_experts : {false, true}) {
      const auto count = [&](int64_t num_layers, double limit) {
        Json config = step_config(num_layers, has_experts);
        for (const char* key : {"swiglu_limits", "swiglu_limits_shared"}) {
          config[key] = Json(Json::Array(static_cast<size_t>(num_layers), Json(limit)));
        }
        return count_bytes(config, dtype, false, false);
      };
      const CountedBytes with = count(6, 0.5);
      const CountedBytes without = count(6, 0);
      const int64_t counted = (with.kept - count(2, 0.5).kept) - (without.kept - count(2, 0).kept);
      const int64_t planned = with.planned.block_kept - without.planned.block_kept;
      EXPECT_NEAR(static_cast<double>(planned) / static_cast<double>(counted) * 4, 1.0, 0.02)
          << dtype << " " << has_experts << " " << planned << " " << counted;
    }
  }
}

class StateSizesTest : public testing::TestWithParam<std::pair<const char*, at::ScalarType>> {};

TEST_P(StateSizesTest, LayersKeepWhatIsPlannedAndNeedAboutThat) {
  const auto [golden, dtype] = GetParam();
  const auto count = [&, name = golden, type = dtype](int64_t num_layers) {
    return count_bytes(state_config(name, "linear_attention", num_layers), type, false, false);
  };
  const CountedBytes few = count(2);
  const CountedBytes many = count(6);
  const double block = static_cast<double>(many.kept - few.kept) / 4;
  EXPECT_NEAR(static_cast<double>(many.planned.block_kept) / block, 1.0, 0.02) << block;
  const nn::ActivationSizes& sizes = many.planned;
  const int64_t blocks = sizes.embedding + 6 * sizes.block_kept;
  const int64_t peak = std::max(blocks + sizes.final_norm_kept + sizes.head_kept + sizes.logits,
                                blocks + sizes.block_backward);
  EXPECT_NEAR(static_cast<double>(peak) / static_cast<double>(many.peak), 1.0, 0.1) << many.peak;
}

INSTANTIATE_TEST_SUITE_P(
    Golden, StateSizesTest,
    testing::Values(std::pair("qwen3_5", at::kFloat), std::pair("qwen3_5", at::kBFloat16),
                    std::pair("nemotron_h", at::kFloat), std::pair("nemotron_h", at::kBFloat16),
                    std::pair("falcon_h1", at::kFloat), std::pair("falcon_h1", at::kBFloat16),
                    std::pair("kimi_linear", at::kFloat), std::pair("kimi_linear", at::kBFloat16)),
    [](const auto& info) {
      return cat(info.param.first, info.param.second == at::kFloat ? "InFloat32" : "InBfloat16");
    });

/// What is there when the loss is, as planned.
int64_t planned_at_loss(const nn::ActivationSizes& sizes, int64_t num_blocks) {
  return sizes.embedding + num_blocks * sizes.block_kept + sizes.final_norm_kept + sizes.head_kept;
}

TEST(ActivationSizes, DepthsOfFurtherTokensKeepAboutWhatIsPlanned) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto count = [&](int64_t num_depths) {
      Json config = wide_config("nemotron_h_mtp", 2);
      config["num_nextn_predict_layers"] = num_depths;
      config["mtp_use_repeated_layer"] = true;
      config["mtp_layers_block_type"] = Json(Json::Array{Json("attention"), Json("mlp")});
      return count_bytes(config, dtype, false, false);
    };
    const CountedBytes plain = count(0);
    const CountedBytes one = count(1);
    const CountedBytes three = count(3);
    const auto ratio = [](int64_t planned, int64_t counted) {
      return static_cast<double>(planned) / static_cast<double>(counted);
    };
    const int64_t first = planned_at_loss(one.planned, 4) - planned_at_loss(plain.planned, 2);
    EXPECT_NEAR(ratio(first, one.kept - plain.kept), 1.0, 0.1) << one.kept - plain.kept;
    const int64_t more = planned_at_loss(three.planned, 4) - planned_at_loss(one.planned, 4);
    EXPECT_NEAR(ratio(more, three.kept - one.kept), 1.0, 0.1) << three.kept - one.kept;
    const int64_t peak = planned_at_loss(three.planned, 4) + three.planned.logits;
    EXPECT_NEAR(ratio(peak, three.peak), 1.0, 0.1) << three.peak;
  }
}

/// By small chunks of plain logits, whatever computes them.
TEST(ActivationSizes, ALossOfASplitVocabularyIsAlikeOnADevice) {
  const auto model = models::build_causal_lm(tiny_config("llama", 2), at::kBFloat16);
  nn::ActivationShape shape{1, 4096, 2};
  shape.num_vocab_parts = 2;
  shape.is_plain = true;
  const int64_t plain = model->activation_sizes(shape).logits;
  shape.is_plain = false;
  shape.on_device = true;
  EXPECT_EQ(model->activation_sizes(shape).logits, plain);
  shape.num_vocab_parts = 1;
  EXPECT_NE(model->activation_sizes(shape).logits, plain);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* family : {"llama", "qwen2", "qwen3", "mistral", "phi3", "gemma", "gemma2",
                             "gemma3", "gpt2", "olmo2", "granite"}) {
    all.push_back({family, at::kFloat});
    all.push_back({family, at::kBFloat16});
    all.push_back({family, at::kBFloat16, false, true});
    all.push_back({family, at::kFloat, true});
    all.push_back({family, at::kBFloat16, true});
  }
  all.push_back({"qwen3_moe", at::kFloat});
  return all;
}

std::vector<Case> cases_without_flash() {
  std::vector<Case> all = cases();
  std::erase_if(all, [](const Case& c) { return c.on_device && c.dtype == at::kBFloat16; });
  return all;
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return cat(info.param.family, info.param.dtype == at::kFloat ? "InFloat32" : "InBfloat16",
             info.param.on_device ? "OnADevice" : "", info.param.is_plain ? "Plain" : "");
}

INSTANTIATE_TEST_SUITE_P(Families, ActivationSizesTest, testing::ValuesIn(cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Families, ActivationPeaksTest, testing::ValuesIn(cases_without_flash()),
                         name_of);

}  // namespace
}  // namespace automodel
