// What config.json says of families whose classes in transformers differ from their relatives.
#include <gtest/gtest.h>

#include <cmath>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "models/decoder/decoder_model.h"
#include "models/flops.h"
#include "models/read_config.h"
#include "support/temporary_directory.h"

namespace automodel::models {
namespace {

bool has_head(const Json& config) {
  const auto model = build_causal_lm(config, at::kFloat);
  return !model->parallel_plan().head.empty();
}

TEST(NemotronConfigTest, LayersOfExpertsHaveOneKindOfMlp) {
  Json config = config_of("nemotron_h_moe");
  EXPECT_EQ(problems_of(config), "");
  config["mlp_hidden_act"] = "silu";
  EXPECT_NE(problems_of(config).find("mlp_hidden_act"), std::string::npos);
  config["mlp_hidden_act"] = Json(int64_t{3});
  EXPECT_NE(problems_of(config).find("mlp_hidden_act"), std::string::npos);
  config = config_of("nemotron_h_moe");
  config["mlp_bias"] = Json(true);
  EXPECT_NE(problems_of(config).find("mlp_bias"), std::string::npos);
}

TEST(NemotronConfigTest, ALatentSizeIsAWholeNumberAboveZero) {
  for (const Json& value : {Json(int64_t{0}), Json(int64_t{-16}), Json("16"), Json(16.5)}) {
    Json config = config_of("nemotron_h_latent");
    config["moe_latent_size"] = value;
    EXPECT_NE(problems_of(config).find("moe_latent_size"), std::string::npos) << value.dump();
  }
  Json config = config_of("nemotron_h_latent");
  config["moe_latent_size"] = Json();
  EXPECT_EQ(problems_of(config), "");
  EXPECT_EQ(build_causal_lm(config, at::kFloat)->key_map().size(),
            build_causal_lm(config_of("nemotron_h_moe"), at::kFloat)->key_map().size());
}

TEST(NemotronConfigTest, TheNumberOfSharedExpertsChangesNothing) {
  Json config = config_of("nemotron_h_moe");
  const auto wanted = build_causal_lm(config, at::kFloat)->key_map();
  config["n_shared_experts"] = Json(int64_t{2});
  const auto found = build_causal_lm(config, at::kFloat)->key_map();
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].shape, wanted[i].shape);
}

TEST(NemotronConfigTest, TheHeadIsNeverTheEmbedding) {
  Json config = config_of("nemotron_h");
  config["tie_word_embeddings"] = Json(true);
  EXPECT_TRUE(has_head(config));
}

TEST(NemotronConfigTest, OnlyLayerNormEpsilonCounts) {
  Json config = config_of("nemotron_h");
  config.erase("layer_norm_epsilon");
  config["rms_norm_eps"] = Json("not read");
  EXPECT_EQ(problems_of(config), "");
}

TEST(NemotronConfigTest, StepSizesAreInOrderAndAboveZero) {
  for (const auto& [key, value] : {std::pair("time_step_min", Json(0)),
                                   {"time_step_min", Json(-1)},
                                   {"time_step_max", Json(1e-10)},
                                   {"time_step_floor", Json(-1e-4)},
                                   {"time_step_limit", Json(Json::Array{Json(0.5), Json(0.1)})}}) {
    Json config = config_of("nemotron_h");
    config[key] = value;
    const std::string problems = problems_of(config);
    EXPECT_NE(problems.find(cat(key, " ")), std::string::npos) << problems;
    EXPECT_EQ(problems.find('\n'), std::string::npos) << problems;
  }
}

TEST(LladaConfigTest, OptionsThatNoReleaseHasAreRefused) {
  EXPECT_EQ(problems_of(config_of("llada")), "");
  const std::tuple<const char*, Json, const char*> wrong[] = {
      {"block_type", Json("sequential"),
       "block_type 'sequential' is not built in this version; 'llama' is"},
      {"layer_norm_type", Json("default"),
       "layer_norm_type 'default' is not built in this version; 'rms' is"},
      {"rope", Json(false), "rope false is not built in this version"},
      {"alibi", Json(true), "alibi true is not built in this version"},
      {"multi_query_attention", Json(true),
       "multi_query_attention true is not built in this version"},
      {"layer_norm_with_affine", Json(false),
       "layer_norm_with_affine false is not built in this version"},
      {"attention_layer_norm_with_affine", Json(false),
       "attention_layer_norm_with_affine false is not built in this version"},
      {"bias_for_layer_norm", Json(true),
       "norms with biases are not built in this version; bias_for_layer_norm: false"},
      {"block_group_size", Json(int64_t{2}),
       "block_group_size above 1 gives tensors other names; it is not built here"},
      {"embedding_size", Json(int64_t{96}), "embedding_size 96 is less than vocab_size 128"},
      {"n_heads", Json(int64_t{5}), "n_heads 5 does not divide d_model 32"},
      {"n_kv_heads", Json(int64_t{3}), "n_kv_heads 3 does not divide n_heads 4"},
      {"n_layers", Json(int64_t{1000000}), "n_layers is 1000000; at most 10000 is right"},
      {"activation_type", Json("swiglu"), "activation_type 'swiglu' is not an activation known"}};
  for (const auto& [key, value, text] : wrong) {
    Json config = config_of("llada");
    config[key] = value;
    EXPECT_NE(problems_of(config).find(text), std::string::npos) << problems_of(config);
  }
  Json config = config_of("llada");
  config.erase("bias_for_layer_norm");
  EXPECT_EQ(problems_of(config), "");
  config["include_bias"] = Json(true);  // which it then follows
  EXPECT_NE(problems_of(config).find("norms with biases"), std::string::npos);
}

TEST(FamilyConfigTest, WhatTransformersReadsOtherwiseIsRefused) {
  const auto list = [](const char* text) { return Json::parse(text, "value"); };
  const std::tuple<const char*, const char*, Json, const char*> wrong[] = {
      {"llama_default", "rms_norm_eps", Json(std::nan("")), "rms_norm_eps must be a number"},
      {"llama_default", "rms_norm_eps", Json(-1.0), "rms_norm_eps is -1; it must be at least 0"},
      {"stablelm", "layer_norm_eps", Json(-1.0), "layer_norm_eps is -1; it must be at least 0"},
      {"llama_default", "head_dim", Json(int64_t{1} << 30), "sizes are too large: a matrix of "},
      {"llama_default", "num_hidden_layers", Json(int64_t{100000}), "at most 10000 is right"},
      {"llama_default", "model_type", Json("mistral"),
       "architectures names a LlamaForCausalLM, but model_type 'mistral' is that of a "
       "MistralForCausalLM"},
      {"gemma2", "final_logit_softcapping", Json(-5.0), "it must be at least 0"},
      {"gemma2", "attn_logit_softcapping", Json(-5.0), "it must be at least 0"},
      {"gemma3_text", "final_logit_softcapping", Json(-5.0), "it must be at least 0"},
      {"ernie4_5_moe", "moe_norm_min", Json(0.9), "moe_norm_min above 1e-6 is not built"},
      {"gpt_oss", "swiglu_limit", Json(-1.0), "swiglu_limit is -1; it must be above 0"},
      {"smollm3", "layer_types", list(R"(["sliding_attention", "full_attention"])"),
       "layer_types holds sliding_attention, but no sliding_window is in force"},
      {"kimi_linear", "model_max_length", Json(int64_t{7}), "are two names of one value"}};
  for (const auto& [golden, key, value, text] : wrong) {
    Json config = config_of(golden);
    EXPECT_EQ(problems_of(config), "") << golden;
    if (std::string(key) == "layer_types") {
      config["num_hidden_layers"] = Json(int64_t{2});
      config.erase("no_rope_layers");
      config["use_sliding_window"] = Json(false);
    }
    if (std::string(key) == "model_max_length")
      config["max_position_embeddings"] = Json(int64_t{8});
    config[key] = value;
    EXPECT_NE(problems_of(config).find(text), std::string::npos)
        << golden << "." << key << ": " << problems_of(config);
  }
}

TEST(LladaConfigTest, SeesLaterTokensWhereOthersDoNot) {
  EXPECT_TRUE(sees_later_tokens(config_of("llada")));
  EXPECT_FALSE(sees_later_tokens(config_of("llama_default")));
  EXPECT_FALSE(sees_later_tokens(Json::parse(R"({"model_type": "no such"})", "")));
  EXPECT_EQ(vocabulary_size(config_of("llada_qk_norm_tied")), 128);  // of 120 that are used
}

TEST(ExpertsConfigTest, GatedOnesAreNotOfSquaredRelu) {
  for (const char* golden : {"qwen3_moe", "qwen3_next", "mixtral"}) {
    Json config = config_of(golden);
    EXPECT_EQ(problems_of(config), "");
    config["hidden_act"] = Json("relu2");
    EXPECT_NE(problems_of(config).find("hidden_act of a mixture of experts"), std::string::npos);
  }
}

TEST(FalconConfigTest, SizesAndMultipliersAreChecked) {
  EXPECT_EQ(problems_of(config_of("falcon_h1")), "");
  const Json two(Json::Array{Json(1.0), Json(2.0)});
  for (const auto& [key, value, text] :
       {std::tuple("mamba_d_head", Json(int64_t{9}), "must be the width 48 of the layer"),
        {"mamba_n_groups", Json(int64_t{5}), "mamba_n_groups 5 does not divide mamba_n_heads 6"},
        {"ssm_multipliers", two, "ssm_multipliers must be a list of 5 numbers"},
        {"mlp_multipliers", Json(3.0), "mlp_multipliers must be a list of 2 numbers"},
        {"key_multiplier", Json(0.0), "key_multiplier is 0; it must be above 0"},
        {"mamba_proj_bias", Json(true), "projectors_bias and mamba_proj_bias differ"}}) {
    Json config = config_of("falcon_h1");
    config[key] = value;
    const std::string problems = problems_of(config);
    EXPECT_NE(problems.find(text), std::string::npos) << problems;
    EXPECT_EQ(problems.find('\n'), std::string::npos) << problems;
  }
}

TEST(FalconConfigTest, AHeadsWidthThatIsAutoIsTheLayersByHeads) {
  Json config = config_of("falcon_h1");
  const auto wanted = build_causal_lm(config, at::kFloat)->key_map();
  config["mamba_d_head"] = Json("auto");
  EXPECT_EQ(problems_of(config), "");
  EXPECT_EQ(build_causal_lm(config, at::kFloat)->key_map().size(), wanted.size());
  config["mamba_d_ssm"] = Json();  // twice the hidden size
  EXPECT_NE(problems_of(config).find("must be the width 64"), std::string::npos)
      << problems_of(config);
}

TEST(LingConfigTest, WhatItsReleasesDoNotHaveIsRefused) {
  EXPECT_EQ(problems_of(config_of("bailing_moe_v2")), "");
  for (const auto& [key, value] : {std::pair("score_function", Json("softmax")),
                                   {"moe_router_enable_expert_bias", Json(false)},
                                   {"output_dropout", Json(0.1)},
                                   {"embedding_dropout", Json(0.1)},
                                   {"topk_group", Json(int64_t{5})}}) {
    Json config = config_of("bailing_moe_v2");
    config[key] = value;
    EXPECT_NE(problems_of(config).find(key), std::string::npos) << key << problems_of(config);
  }
}

TEST(LingConfigTest, RotatedDimsCountBeforeTheirShare) {
  Json config = config_of("bailing_moe_v2");
  config["rotary_dim"] = Json(int64_t{16});
  EXPECT_EQ(problems_of(config), "");
  for (const int64_t wrong : {3, 18}) {
    config["rotary_dim"] = Json(wrong);
    EXPECT_NE(problems_of(config).find("rotary_dim is "), std::string::npos) << wrong;
  }
}

TEST(LingConfigTest, NullIsNoSharedExpertsAndAbsentIsOne) {
  Json config = config_of("bailing_moe_v2");
  const size_t wanted = build_causal_lm(config, at::kFloat)->key_map().size();
  config.erase("num_shared_experts");
  EXPECT_EQ(build_causal_lm(config, at::kFloat)->key_map().size(), wanted);
  config["num_shared_experts"] = Json();
  EXPECT_EQ(build_causal_lm(config, at::kFloat)->key_map().size(), wanted - 6);  // of two layers
}

TEST(FamilyConfigTest, OptionsThatAreNotBuiltAreRefused) {
  for (const auto& [golden, key, value] : {std::tuple("phi", "tie_word_embeddings", Json(true)),
                                           {"ernie4_5_moe", "use_bias", Json(true)},
                                           {"stablelm", "hidden_dropout", Json(0.1)},
                                           {"deepseek_v2", "norm_topk_prob", Json(true)},
                                           {"deepseek_v2", "scoring_func", Json("sigmoid")},
                                           {"deepseek_v2", "moe_layer_freq", Json(int64_t{2})},
                                           {"deepseek_v2", "topk_method", Json("noaux_tc")},
                                           {"olmo_clip_tied", "clip_qkv", Json(0.0)},
                                           {"olmoe", "clip_qkv", Json(-1.0)},
                                           {"helium", "head_dim", Json(int64_t{16})},
                                           {"gpt_neox", "num_key_value_heads", Json(int64_t{2})},
                                           {"exaone4", "sliding_window_pattern", Json("LLLG")}}) {
    Json config = config_of(golden);
    EXPECT_EQ(problems_of(config), "");
    if (std::string_view(golden) == "exaone4") config.erase("layer_types");
    config[key] = value;
    const std::string problems = problems_of(config);
    const bool is_heads = std::string_view(golden) == "gpt_neox";
    EXPECT_NE(problems.find(is_heads ? "as many heads" : key), std::string::npos)
        << golden << " " << key << ": " << problems;
    EXPECT_EQ(problems.find('\n'), std::string::npos) << problems;
  }
}

TEST(FamilyConfigTest, ARecipeMovesTheCorrectionsOfFamiliesThatHaveOne) {
  for (const char* golden : {"hy_v3", "ernie4_5_moe", "bailing_moe_v2"}) {
    Json config = config_of(golden);
    config["moe_overrides"] = Json::object();
    config["moe_overrides"]["gate_bias_update_factor"] = Json("fast");
    EXPECT_NE(problems_of(config).find("gate_bias_update_factor"), std::string::npos) << golden;
  }
}

/// Layers behind the last one predict further tokens: they are kept as they are.
TEST(NextTokenLayersTest, AreKeptOfFamiliesThatHaveThem) {
  for (const char* golden : {"deepseek_v3", "glm4_moe", "glm4_moe_lite", "bailing_moe_v2", "hy_v3",
                             "deepseek_v32", "glm_moe_dsa", "kimi_linear"}) {
    Json config = config_of(golden);
    config.erase("num_nextn_predict_layers");
    EXPECT_TRUE(build_causal_lm(config, at::kFloat)->kept_prefixes().empty()) << golden;
    config["num_nextn_predict_layers"] = Json(int64_t{2});
    const int64_t last = config.at("num_hidden_layers").as_int();
    const std::vector<std::string> wanted = {cat("model.layers.", last, "."),
                                             cat("model.layers.", last + 1, ".")};
    EXPECT_EQ(build_causal_lm(config, at::kFloat)->kept_prefixes(), wanted) << golden;
    config["num_nextn_predict_layers"] = Json(int64_t{65});
    EXPECT_NE(problems_of(config).find("at most 64"), std::string::npos) << golden;
  }
}

decoder::DecoderConfig v4_config(const Json& config) {
  EXPECT_EQ(problems_of(config), "");
  const auto model = build_causal_lm(config, at::kFloat);
  return dynamic_cast<decoder::DecoderModel&>(*model).config();
}

Json numbers_list(std::initializer_list<int64_t> numbers) {
  Json::Array list;
  for (const int64_t number : numbers) list.emplace_back(number);
  return Json(list);
}

/// A config.json as the first releases have it reads as the one that transformers writes.
TEST(DeepseekV4ConfigTest, OlderKeysMeanTheSame) {
  const Json written = config_of("deepseek_v4");
  const decoder::DecoderConfig wanted = v4_config(written);
  Json config = written;
  for (const char* key : {"layer_types", "mlp_layer_types", "compress_rates", "rope_parameters",
                          "partial_rotary_factor"}) {
    config.erase(key);
  }
  config["compress_ratios"] = numbers_list({0, 4, 128, 4, 0});  // one more, of a further token's
  config["compress_rate_csa"] = Json(int64_t{4});
  config["compress_rate_hca"] = Json(int64_t{8});
  config["num_hash_layers"] = Json(int64_t{1});
  config["qk_rope_head_dim"] = Json(int64_t{8});
  config["rope_scaling"] = written.at("rope_parameters").at("compress");
  for (const char* key : {"rope_theta", "partial_rotary_factor", "attention_factor"}) {
    config["rope_scaling"].erase(key);
  }
  const decoder::DecoderConfig found = v4_config(config);
  for (size_t i = 0; i < wanted.layers.size(); ++i) {
    EXPECT_EQ(found.layers[i].compression, wanted.layers[i].compression) << i;
    EXPECT_EQ(found.layers[i].rope, wanted.layers[i].rope) << i;
    EXPECT_EQ(found.layers[i].is_hash_routed, i == 0) << i;
  }
  EXPECT_EQ(found.compressed_attention->heavy_rate, 8);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(found.ropes[i].type, wanted.ropes[i].type);
    EXPECT_EQ(found.ropes[i].theta, wanted.ropes[i].theta);
    EXPECT_EQ(found.ropes[i].rotary_dim, 8);
    EXPECT_EQ(found.ropes[i].factor, wanted.ropes[i].factor);
    EXPECT_EQ(found.ropes[i].attention_factor, wanted.ropes[i].attention_factor);
  }
}

TEST(DeepseekV4ConfigTest, AbsentListsAreTransformersDefaults) {
  Json config = config_of("deepseek_v4");
  config["num_hidden_layers"] = Json(int64_t{5});
  for (const char* key : {"layer_types", "mlp_layer_types", "compress_rates"}) config.erase(key);
  const decoder::DecoderConfig found = v4_config(config);
  using enum decoder::Compression;
  const decoder::Compression kinds[] = {kHeavy, kHeavy, kHeavy, kSparse, kHeavy};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(found.layers[i].compression, kinds[i]) << i;
    EXPECT_EQ(found.layers[i].is_hash_routed, i < 3) << i;
  }
  EXPECT_EQ(found.compressed_attention->sparse_rate, 4);
  EXPECT_EQ(found.compressed_attention->heavy_rate, 128);
}

TEST(DeepseekV4ConfigTest, FewerLayersThanListedAreTheFirst) {
  Json config = config_of("deepseek_v4");
  config["num_hidden_layers"] = Json(int64_t{2});
  EXPECT_EQ(v4_config(config).num_layers(), 2);
}

TEST(DeepseekV4ConfigTest, SaysWhatIsWrong) {
  const auto problems = [](const char* key, const Json& value) {
    Json config = config_of("deepseek_v4");
    config[key] = value;
    return problems_of(config);
  };
  const Json one(int64_t{1}), two(int64_t{2}), three(int64_t{3});
  EXPECT_EQ(problems("num_key_value_heads", two),
            "num_key_value_heads is 2; all heads of a DeepSeek V4 share one head of keys: 1 is "
            "right");
  EXPECT_EQ(problems("n_shared_experts", two),
            "n_shared_experts is 2; transformers' class has one shared MLP of "
            "moe_intermediate_size, so 1 is right");
  EXPECT_EQ(problems("scoring_func", Json("softmax")),
            "scoring_func 'softmax' is not known here; known: sqrtsoftplus, sigmoid");
  EXPECT_EQ(problems("norm_topk_prob", Json(false)),
            "norm_topk_prob is false; a DeepSeek V4 always divides by the scores' sum");
  EXPECT_EQ(problems("swiglu_limit", Json(0.0)), "swiglu_limit is 0; it must be above 0");
  EXPECT_EQ(problems("o_groups", three), "o_groups 3 does not divide num_attention_heads 4");
  EXPECT_EQ(problems("attention_bias", Json(true)),
            "attention_bias true is not built for DeepSeek V4");
  EXPECT_EQ(problems("attention_dropout", Json(0.1)),
            "attention_dropout above 0 is not built for DeepSeek V4");
  EXPECT_EQ(problems("index_head_dim", Json(int64_t{4})),
            "index_head_dim 4 is less than the 8 dims of a head that rotate");
  EXPECT_EQ(problems("layer_types", Json("all")),
            "layer_types must be a list with an entry for each of 4 layers");
  EXPECT_EQ(problems("mlp_layer_types", Json(Json::Array{"moe", "dense", "moe", "moe"})),
            "mlp_layer_types holds \"dense\"; known here: hash_moe, moe");
  Json config = config_of("deepseek_v4");
  config.erase("layer_types");
  config["compress_ratios"] = numbers_list({0, 4, 128, 2});
  EXPECT_EQ(problems_of(config), "compress_ratios holds 2; known here: 0, 4, 128");
}

/// Layers that predict further tokens have names of their own, kept whatever their number is.
TEST(DeepseekV4ConfigTest, KeepsTheTensorsOfFurtherTokens) {
  Json config = config_of("deepseek_v4");
  config["num_nextn_predict_layers"] = Json(int64_t{0});
  EXPECT_EQ(build_causal_lm(config, at::kFloat)->kept_prefixes(), std::vector<std::string>{"mtp."});
}

TEST(DeepseekV4ConfigTest, NamesThatTransformersSavesStandIn) {
  const auto model = build_causal_lm(config_of("deepseek_v4"), at::kFloat);
  const auto names = model->stand_ins();
  EXPECT_EQ(names.size(), 8u);
  EXPECT_EQ(names.at("embed.weight"), "embed_tokens.weight");
  EXPECT_EQ(names.at("hc_head_fn"), "hc_head.hc_fn");
  EXPECT_EQ(names.at("layers.3.attn.kv_norm.weight"), "layers.3.attn.norm.weight");
}

TEST(SizesConfigTest, AreNoLargerThan32Bits) {
  Json config = config_of("qwen3_5");
  config["linear_num_value_heads"] = Json(int64_t{300000000000000000});
  EXPECT_NE(problems_of(config).find("it must be at most 2147483647"), std::string::npos);
}

TEST(PaddingConfigTest, AFamilysDefaultRowIsInTheVocabulary) {
  Json config = config_of("glm");
  config.erase("pad_token_id");
  EXPECT_NE(problems_of(config).find("pad_token_id is absent"), std::string::npos);
}

/// A letter a layer: d for delta attention, f for full attention, in capitals with experts.
std::string kinds_of_layers(const Json& config) {
  EXPECT_EQ(problems_of(config), "");
  const auto model = build_causal_lm(config, at::kFloat);
  std::string out;
  for (const auto& layer : dynamic_cast<decoder::DecoderModel&>(*model).config().layers) {
    const bool is_delta = layer.mixer == decoder::Mixer::kGatedDelta;
    out += layer.is_moe ? (is_delta ? 'D' : 'F') : (is_delta ? 'd' : 'f');
  }
  return out;
}

Json numbers(std::initializer_list<int64_t> values) {
  Json::Array list;
  for (const int64_t value : values) list.emplace_back(value);
  return Json(list);
}

/// config.json as Moonshot's release has it, of fewer and smaller layers.
Json released_kimi() {
  Json config = config_of("kimi_linear");
  for (const char* key : {"layer_types", "mlp_layer_types", "linear_num_heads", "linear_head_dim",
                          "linear_conv_kernel_dim"}) {
    config.erase(key);
  }
  config["num_hidden_layers"] = Json(int64_t{5});
  config["first_k_dense_replace"] = Json(int64_t{1});
  Json linear = Json::object();
  linear["kda_layers"] = numbers({1, 2, 3, 5});
  linear["full_attn_layers"] = numbers({4});
  linear["head_dim"] = Json(int64_t{8});
  linear["num_heads"] = Json(int64_t{3});
  linear["short_conv_kernel_size"] = Json(int64_t{4});
  config["linear_attn_config"] = linear;
  return config;
}

TEST(KimiConfigTest, ReleasesAndTransformersNameLayersEachInTheirWay) {
  EXPECT_EQ(kinds_of_layers(config_of("kimi_linear")), "dFD");
  Json config = released_kimi();
  EXPECT_EQ(kinds_of_layers(config), "dDDFD");
  const auto model = build_causal_lm(config, at::kFloat);
  const auto& options = dynamic_cast<decoder::DecoderModel&>(*model).config();
  EXPECT_EQ(options.gated_delta->key_dim, 8);
  EXPECT_EQ(options.gated_delta->num_heads, 3);
  EXPECT_EQ(options.gated_delta->num_taps, 4);
  config["num_hidden_layers"] = Json(int64_t{6});
  config.erase("linear_attn_config");
  EXPECT_EQ(kinds_of_layers(config), "dDDDFD");
}

TEST(KimiConfigTest, KeysHaveTheirCommonNamesToo) {
  Json config = config_of("kimi_linear_groups_padding");
  const auto wanted = build_causal_lm(config, at::kFloat)->key_map().size();
  for (const auto& [own, common] : {std::pair("num_experts", "num_local_experts"),
                                    {"num_experts_per_token", "num_experts_per_tok"},
                                    {"num_expert_group", "n_group"},
                                    {"num_shared_experts", "n_shared_experts"},
                                    {"moe_renormalize", "norm_topk_prob"}}) {
    config[common] = config.at(own);
    config.erase(own);
  }
  const auto model = build_causal_lm(config, at::kFloat);
  EXPECT_EQ(model->key_map().size(), wanted);
  const moe::MoEConfig& moe = *dynamic_cast<decoder::DecoderModel&>(*model).config().moe;
  EXPECT_EQ(moe.n_activated_experts, 3);
  EXPECT_EQ(moe.n_expert_groups, 4);
  EXPECT_EQ(moe.n_shared_experts, 2);
  EXPECT_FALSE(moe.norm_topk_prob);
}

TEST(KimiConfigTest, UpstreamsOwnNameOfTheModelIsKnown) {
  Json config = config_of("kimi_linear");
  config["architectures"] = Json(Json::Array{Json("KimiLinear48BForCausalLM")});
  config["model_type"] = Json("kimi_linear_48b_a3b");
  const auto model = build_causal_lm(config, at::kFloat);
  EXPECT_EQ(model->hf_config().at("architectures").as_array()[0], "KimiLinearForCausalLM");
  EXPECT_EQ(model->hf_config().at("model_type"), "kimi_linear");
}

/// transformers also writes dense layers' MLPs under the name of layers of experts.
TEST(KimiConfigTest, DenseMlpsAreFoundUnderBothNames) {
  const auto stand_ins = build_causal_lm(config_of("kimi_linear"), at::kFloat)->stand_ins();
  EXPECT_EQ(stand_ins.size(), 3);
  EXPECT_EQ(stand_ins.at("model.layers.0.mlp.up_proj.weight"),
            "model.layers.0.block_sparse_moe.up_proj.weight");
  EXPECT_TRUE(build_causal_lm(config_of("mixtral"), at::kFloat)->stand_ins().empty());
}

TEST(KimiConfigTest, SaysWhatIsWrong) {
  const auto problems = [](const char* key, const Json& value) {
    Json config = released_kimi();
    config[key] = value;
    return problems_of(config);
  };
  const auto linear_problems = [](const char* key, const Json& value) {
    Json config = released_kimi();
    Json linear = config.at("linear_attn_config");
    linear[key] = value;
    config["linear_attn_config"] = linear;
    return problems_of(config);
  };
  EXPECT_EQ(problems("mla_use_nope", Json(false)),
            "mla_use_nope is false; this family's latent attention does not rotate");
  EXPECT_EQ(problems("tie_word_embeddings", Json(true)),
            "tie_word_embeddings is true; this family has a head of its own");
  EXPECT_EQ(problems("moe_router_activation_func", Json("softmax")),
            "moe_router_activation_func other than sigmoid is not in this version");
  EXPECT_EQ(problems("moe_layer_freq", Json(int64_t{2})),
            "moe_layer_freq other than 1 is not in this version");
  EXPECT_EQ(problems("attn_res_block_size", Json(int64_t{12})),
            "attn_res_block_size is Kimi K3's, which is not built in this version");
  EXPECT_EQ(problems("mla_use_output_gate", Json(true)),
            "mla_use_output_gate true is Kimi K3's, which is not built in this version");
  EXPECT_EQ(problems("linear_attn_config", Json("none")),
            "linear_attn_config must be an object, not a string");
  EXPECT_EQ(problems("num_expert_group", Json(int64_t{4})),
            "num_expert_group 4 does not divide num_experts 6");
  EXPECT_EQ(linear_problems("kda_layers", numbers({1, 2, 3})),
            "linear_attn_config: layer 5 is in neither of kda_layers and full_attn_layers");
  EXPECT_EQ(linear_problems("kda_layers", numbers({1, 2, 3, 4, 5})),
            "linear_attn_config: layer 4 is in both of kda_layers and full_attn_layers");
  EXPECT_EQ(linear_problems("kda_layers", numbers({0, 1, 2, 3, 5})),
            "linear_attn_config.kda_layers holds 0; layers are numbered from 1 to "
            "num_hidden_layers 5\nlinear_attn_config: layer 1 is in neither of kda_layers and "
            "full_attn_layers");
  EXPECT_EQ(linear_problems("gate_lower_bound", Json(-5.0)),
            "linear_attn_config.gate_lower_bound is Kimi K3's, which is not built in this version");
}

TEST(HunYuanConfigTest, ListsOfOneNumberAreTheNumber) {
  Json config = config_of("hunyuan_v1_moe");
  const auto wanted = build_causal_lm(config, at::kFloat)->key_map().size();
  config["moe_topk"] = numbers({2, 2});
  config["num_experts"] = numbers({6, 6});
  config["num_shared_expert"] = numbers({1, 1});
  config["moe_intermediate_size"] = numbers({56, 56});
  EXPECT_EQ(problems_of(config), "");
  EXPECT_EQ(build_causal_lm(config, at::kFloat)->key_map().size(), wanted);
  config["moe_topk"] = numbers({2, 3});
  EXPECT_EQ(problems_of(config), "moe_topk differs between layers, which is not in this version");
}

TEST(HunYuanConfigTest, SaysWhatIsWrong) {
  const auto problems = [](const char* golden, const char* key, const Json& value) {
    Json config = config_of(golden);
    config[key] = value;
    return problems_of(config);
  };
  EXPECT_EQ(problems("hunyuan_v1_dense", "use_cla", Json(true)),
            "use_cla true is not in this version: layers that share keys and values");
  EXPECT_EQ(problems("hunyuan_v1_dense", "use_qk_norm", Json(false)),
            "use_qk_norm false is not in this version: transformers norms q and k");
  EXPECT_EQ(problems("hunyuan_v1_moe", "num_shared_expert", Json(int64_t{2})),
            "num_shared_expert other than 1 is not in this version");
  EXPECT_EQ(problems("hunyuan_v1_moe", "moe_intermediate_size", Json(int64_t{40})),
            "moe_intermediate_size is not intermediate_size 56, which transformers takes for "
            "experts");
  Json rope = config_of("hunyuan_v1_dense").at("rope_parameters");
  rope["alpha"] = Json(-1.0);
  EXPECT_EQ(problems("hunyuan_v1_dense", "rope_parameters", rope),
            "rope_parameters.alpha is -1 for heads of 12; it must be above 0, of heads of more "
            "than 2 dims");
}

/// The layer whose choice of keys each layer sees.
std::vector<int64_t> choosing_layers(const Json& config) {
  EXPECT_EQ(problems_of(config), "");
  const auto model = build_causal_lm(config, at::kFloat);
  std::vector<int64_t> out;
  for (const auto& layer : dynamic_cast<decoder::DecoderModel&>(*model).config().layers) {
    out.push_back(layer.choosing_layer);
  }
  return out;
}

TEST(IndexerConfigTest, LayersShareTheChoiceOfTheOneBefore) {
  Json config = config_of("glm_moe_dsa_shared");
  config["num_hidden_layers"] = Json(int64_t{6});
  for (const char* key : {"indexer_types", "mlp_layer_types"}) config.erase(key);
  EXPECT_EQ(choosing_layers(config), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  config["index_topk_freq"] = Json(int64_t{3});
  EXPECT_EQ(choosing_layers(config), (std::vector<int64_t>{0, 1, 1, 1, 4, 4}));
  config["index_skip_topk_offset"] = Json(int64_t{3});
  EXPECT_EQ(choosing_layers(config), (std::vector<int64_t>{0, 1, 2, 2, 2, 5}));
  config["index_topk_pattern"] = Json("FSFFSS");
  EXPECT_EQ(choosing_layers(config), (std::vector<int64_t>{0, 0, 2, 3, 3, 3}));
  config["model_type"] = Json("deepseek_v32");  // which has no such keys
  config["architectures"] = Json(Json::Array{Json("DeepseekV32ForCausalLM")});
  EXPECT_EQ(choosing_layers(config), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST(IndexerConfigTest, SaysWhatIsWrong) {
  const auto problems = [](const char* key, const Json& value) {
    Json config = config_of("glm_moe_dsa_shared");
    config[key] = value;
    return problems_of(config);
  };
  const auto types = [](std::initializer_list<const char*> names) {
    Json::Array list;
    for (const char* name : names) list.emplace_back(name);
    return Json(list);
  };
  EXPECT_EQ(problems("indexer_types", types({"shared", "full", "full", "full"})),
            "indexer_types: the first layer is shared, but there is none before it");
  EXPECT_EQ(problems("indexer_types", types({"full", "some", "full", "full"})),
            "indexer_types has entries \"full\" and \"shared\"");
  EXPECT_EQ(problems("indexer_types", types({"full"})),
            "indexer_types must be a list with an entry for each layer");
  EXPECT_EQ(problems("index_head_dim", Json(int64_t{6})),
            "index_head_dim 6 is less than the qk_rope_head_dim 8 of it that rotate");
  EXPECT_EQ(problems("q_lora_rank", Json()),
            "q_lora_rank is null; an indexer takes its queries from that projection");
  Json config = config_of("glm_moe_dsa_shared");
  config.erase("indexer_types");
  config["index_topk_pattern"] = Json("FSXS");
  EXPECT_EQ(problems_of(config),
            "index_topk_pattern is made of the letters F (full) and S (shared)");
}

/// transformers' indexer turns neighbouring dims; upstream's does where this key says so.
TEST(IndexerConfigTest, AKeySaysWhichDimsItTurns) {
  Json config = config_of("glm_moe_dsa");
  const auto is_interleaved = [&] {
    const auto model = build_causal_lm(config, at::kFloat);
    return dynamic_cast<decoder::DecoderModel&>(*model).config().indexer->is_rope_interleaved;
  };
  EXPECT_TRUE(is_interleaved());
  config["indexer_rope_interleave"] = Json(false);
  EXPECT_FALSE(is_interleaved());
}

TEST(Mistral4ConfigTest, TheRotatedPartIsThatOfTheSizes) {
  Json config = config_of("mistral4");
  config["rope_parameters"]["partial_rotary_factor"] = Json(0.25);
  EXPECT_NE(problems_of(config).find("it must be qk_rope_head_dim 8"), std::string::npos)
      << problems_of(config);
  config["rope_parameters"].erase("partial_rotary_factor");
  EXPECT_EQ(problems_of(config), "");
  config.erase("rope_parameters");
  EXPECT_EQ(problems_of(config), "");
  const auto model = build_causal_lm(config, at::kFloat);
  const nn::RopeOptions& rope = dynamic_cast<decoder::DecoderModel&>(*model).config().ropes.front();
  EXPECT_EQ(rope.rotary_dim, 8);
  EXPECT_EQ(rope.query_scaling_beta, 0.1);
}

TEST(Llama4ConfigTest, ReleasesNameLayersInTheirWay) {
  const auto layers_of = [](const Json& config) {
    std::string text;
    const auto model = build_causal_lm(config, at::kFloat);
    for (const decoder::LayerOptions& layer : options_of(*model).layers) {
      text += cat(layer.rope, "/", layer.chunk, layer.is_moe ? "e " : " ");
    }
    return text;
  };
  Json config = config_of("llama4");
  const std::string saved = layers_of(config);
  EXPECT_EQ(saved, "0/7 0/7e 0/7 1/0e ");
  for (const char* key : {"layer_types", "moe_layers", "no_rope_layers"}) config.erase(key);
  EXPECT_EQ(layers_of(config), saved);
  config["no_rope_layers"] = Json(Json::Array{});  // Scout's
  config["attn_temperature_tuning"] = Json(int64_t{4});
  EXPECT_EQ(layers_of(config), saved);
  config["attn_temperature_tuning"] = Json(int64_t{0});
  EXPECT_EQ(layers_of(config), "0/7 0/7e 0/7 -1/0e ");
  config["interleave_moe_layer_step"] = Json(int64_t{1});
  config["no_rope_layer_interval"] = Json(int64_t{2});
  config.erase("attention_chunk_size");
  EXPECT_EQ(layers_of(config), "0/8192e -1/0e 0/8192e -1/0e ");
}

TEST(Llama4ConfigTest, OperationsCountTheKeysOfAChunk) {
  Json config = config_of("llama4");
  const auto per_key = [&](int64_t chunk) {
    config["attention_chunk_size"] = Json(chunk);
    return training_flops(config)(1, 20);
  };
  // Three layers have chunks, of 7, 7 and 6 tokens, in the place of one of 20.
  const double dims = 2 * 4 * 12;
  EXPECT_DOUBLE_EQ(per_key(20) - per_key(7), 6 * dims * 3 * (210 - 28 - 28 - 21));
}

TEST(TowerConfigTest, TheWholeSaysWhetherTheHeadIsTied) {
  Json config = config_of("qwen3_5_tower");
  EXPECT_FALSE(has_head(config));
  config.erase("tie_word_embeddings");
  config["text_config"]["tie_word_embeddings"] = Json(true);
  EXPECT_TRUE(has_head(config));
}

TEST(StepConfigTest, EachLayerHasTheHeadsWindowAndRotationOfItsKind) {
  Json config = config_of("step3p5");
  EXPECT_EQ(attention_of_layers(config), "4/2 0 0, 6/2 7 1, 6/2 7 1, 4/2 0 0");
  const auto model = build_causal_lm(config, at::kFloat);
  const auto& ropes = options_of(*model).ropes;
  ASSERT_EQ(ropes.size(), 2);
  EXPECT_EQ(ropes[0].theta, 50000);
  EXPECT_EQ(ropes[0].rotary_dim, 8);
  EXPECT_EQ(ropes[0].type, nn::RopeType::kLlama3);
  EXPECT_EQ(ropes[1].theta, 10000);
  EXPECT_EQ(ropes[1].rotary_dim, 16);
  EXPECT_EQ(ropes[1].type, nn::RopeType::kDefault);
  config.erase("yarn_only_types");
  EXPECT_EQ(options_of(*build_causal_lm(config, at::kFloat)).ropes[1].type, nn::RopeType::kLlama3);
  EXPECT_EQ(attention_of_layers(config_of("step3p5_softmax")),
            "4/2 0 0, 6/3 32 1, 6/3 32 -1, 4/2 0 1");
  EXPECT_EQ(attention_of_layers(config_of("step3p5_no_bias_padding")),
            "4/2 0 0, 4/2 8 0, 4/2 8 0, 4/2 0 0");
  EXPECT_EQ(model->dims().num_heads, 2);  // what divides 4 and 6
}

TEST(StepConfigTest, LayersOfExpertsAreNamedInSeveralWays) {
  Json config = config_of("step3p5");
  const auto with = [&](const Json& value) {
    config["moe_layers_enum"] = value;
    return experts_of_layers(config);
  };
  EXPECT_EQ(with("1,3"), "dede");
  EXPECT_EQ(with(" 0, 2 ,"), "eded");
  EXPECT_EQ(with(Json(Json::Array{Json(int64_t{1}), Json(int64_t{4})})), "dedd");  // 4: behind
  EXPECT_EQ(with(Json(int64_t{2})), "dded");
  EXPECT_EQ(with(Json()), "deee");
  config.erase("moe_layers_enum");
  EXPECT_EQ(experts_of_layers(config), "ddde");
}

TEST(StepConfigTest, BoundsAreOfTheirLayersAlone) {
  const auto model = build_causal_lm(config_of("step3p5"), at::kFloat);
  const auto& layers = options_of(*model).layers;
  std::string experts, mlps;
  for (const auto& layer : layers) {
    experts += cat(layer.expert_bounds.up, " ");
    mlps += cat(layer.mlp_bounds.up, " ");
  }
  EXPECT_EQ(experts, "0 0 0.4 0 ");
  EXPECT_EQ(mlps, "0.3 0 0 0.5 ");
}

TEST(StepConfigTest, TensorsBehindTheLastLayerAreKept) {
  EXPECT_EQ(build_causal_lm(config_of("step3p5"), at::kFloat)->kept_prefixes(),
            (std::vector<std::string>{"model.layers.4.", "model.layers.5."}));
  EXPECT_TRUE(build_causal_lm(config_of("step3p5"), at::kFloat)->stand_ins().empty());
}

TEST(StepConfigTest, SaysWhatIsWrong) {
  const auto problems = [](const char* key, const Json& value) {
    Json config = config_of("step3p5");
    config[key] = value;
    return problems_of(config);
  };
  EXPECT_EQ(problems_of(config_of("step3p5")), "");
  EXPECT_EQ(problems("num_attention_groups", Json(int64_t{3})),
            "num_attention_groups 3 does not divide num_attention_heads 4");
  EXPECT_EQ(problems("num_attention_groups", Json()), "num_attention_groups is missing");
  EXPECT_EQ(problems("layer_types", Json(Json::Array{Json("full_attention")})),
            "layer_types has 1 entries for num_hidden_layers 4");
  EXPECT_EQ(
      problems("layer_types", Json(Json::Array(4, Json("linear_attention")))),
      "layer_types holds \"linear_attention\"; known here: full_attention, sliding_attention");
  EXPECT_EQ(problems("swiglu_limits", Json(Json::Array(4, Json(-1.0)))),
            "swiglu_limits has -1.0; a bound is at least 0, which is none");
  EXPECT_EQ(problems("moe_layers_enum", "1,x"),
            "moe_layers_enum must be layer numbers, e.g. [3, 4] or \"3,4\", not \"1,x\"");
  EXPECT_EQ(problems("moe_layers_enum", "1,6"), "moe_layers_enum names layer 6; there are 6");
  EXPECT_EQ(problems("moe_router_activation", "tanh"),
            "moe_router_activation 'tanh' is not known here; known: sigmoid, softmax\n"
            "use_moe_router_bias is for sigmoid scores (moe_router_activation)");
  EXPECT_EQ(problems("moe_router_activation", "softmax"),
            "use_moe_router_bias is for sigmoid scores (moe_router_activation)");
  EXPECT_EQ(problems("tie_word_embeddings", Json(true)),
            "tie_word_embeddings is true; this family has a head of its own");
  EXPECT_EQ(problems("hidden_act", "gelu_pytorch_tanh"),
            "hidden_act is not silu, which this family's MLPs have");
  EXPECT_EQ(problems("attention_bias", Json(true)),
            "attention_bias true is not built in this version");
  EXPECT_EQ(problems("zero_centered", Json(false)),
            "zero_centered false is not built in this version");
  EXPECT_EQ(problems("rope_theta", Json(Json::Array{Json(1e4)})),
            "rope_theta has 1 entries for num_hidden_layers 4");
  Json other = Json::object();
  other["num_attention_heads"] = Json(int64_t{5});
  other["head_dim"] = Json(int64_t{8});
  EXPECT_EQ(problems("attention_other_setting", other),
            "attention_other_setting.num_attention_groups 2 does not divide num_attention_heads 5\n"
            "attention_other_setting.head_dim is not the 16 of the other layers");
  Json nested = Json::object();
  nested["full_attention"] = Json::object();
  EXPECT_EQ(problems("rope_parameters", nested),
            "rope_parameters is by layer type; this family's files have rope_theta, "
            "partial_rotary_factors and rope_scaling");
}

TEST(Ministral3ConfigTest, AHeadDimOfNullIsTheHiddenSizeByHeads) {
  Json config = config_of("ministral3");
  config["head_dim"] = Json();
  const ModelDims dims = build_causal_lm(config, at::kFloat)->dims();
  EXPECT_EQ(dims.head_dim, dims.hidden_size / dims.num_heads);
  config.erase("head_dim");
  EXPECT_EQ(build_causal_lm(config, at::kFloat)->dims().head_dim, 128);
}

TEST(ModuleNamesTest, RecipesMayUseThoseOfUpstreamsModules) {
  const Json ling = config_of("bailing_moe_v2");
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_in_recipes(ling, "model.layers.1.attention.query_key_value"),
            (Names{"model.layers.1.attention.query_key_value", "model.layers.1.self_attn.q_proj",
                   "model.layers.1.self_attn.k_proj", "model.layers.1.self_attn.v_proj"}));
  EXPECT_EQ(names_in_recipes(ling, "lm_head"), Names{"lm_head"});
  const std::string dense = "model.layers.1.attention.dense";
  EXPECT_EQ(names_in_recipes(config_of("glm4_moe"), dense), Names{dense});
}

TEST(ModuleNamesTest, AreThoseOfTransformersAndReadBothWays) {
  const Json nemotron = config_of("nemotron_h");
  const std::string file = "backbone.layers.1.mixer.experts.lora_A.weight";
  const std::string module = "model.layers.1.mixer.experts.lora_A.weight";
  EXPECT_EQ(name_in_modules(nemotron, file), module);
  EXPECT_EQ(name_in_files(nemotron, module), file);
  EXPECT_EQ(name_in_files(nemotron, file), file);
  const Json mistral = config_of("mistral3_tower");
  EXPECT_EQ(name_in_modules(mistral, "language_model.model.layers.0.mlp.up_proj"),
            "model.language_model.layers.0.mlp.up_proj");
  EXPECT_EQ(name_in_files(mistral, "lm_head"), "language_model.lm_head");
  const Json hy = config_of("hy_v3");
  EXPECT_EQ(name_in_modules(hy, "model.layers.1.mlp.shared_mlp.up_proj"),
            "model.layers.1.mlp.shared_experts.up_proj");
  EXPECT_EQ(name_in_files(hy, "model.layers.1.mlp.shared_experts.up_proj"),
            "model.layers.1.mlp.shared_mlp.up_proj");
  EXPECT_EQ(name_in_files(config_of("llama_default"), "model.layers.0.x"), "model.layers.0.x");
}

TEST(HyConfigTest, HyMt2IsReadAsItIsReleased) {
  Json config = config_of("hy_v3");
  for (const char* key : {"qk_norm", "moe_router_use_sigmoid", "moe_router_enable_expert_bias",
                          "enable_lm_head_fp32"}) {
    config[key] = Json(true);
  }
  config["expert_hidden_dim"] = Json(config["moe_intermediate_size"]);
  EXPECT_EQ(problems_of(config), "");
  config["qk_norm"] = Json(false);
  EXPECT_EQ(problems_of(config), "qk_norm: false is not built for this family");
  config["qk_norm"] = Json();
  config["expert_hidden_dim"] = int64_t{5};
  EXPECT_EQ(problems_of(config), cat("qk_norm: false is not built for this family\n"
                                     "expert_hidden_dim 5 is not the moe_intermediate_size ",
                                     config["moe_intermediate_size"].dump()));
}

}  // namespace
}  // namespace automodel::models
