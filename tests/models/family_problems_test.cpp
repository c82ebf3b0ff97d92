// Values in a config.json that a family cannot take, and keys that released files leave out or name
// otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <tuple>

#include "core/json.h"
#include "core/text.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "models/read_config.h"

namespace automodel::models {
namespace {

TEST(FamilyProblemsTest, AreToldWithKeysAndWhatWouldBeRight) {
  const auto list = [](const char* text) { return Json::parse(text, "value"); };
  const std::tuple<const char*, const char*, Json, const char*> wrong[] = {
      {"gpt_neo", "attention_layers", list(R"(["global", "near", "local", "local"])"),
       "attention_layers must say of each of the 4 layers whether it is \"global\" or \"local\""},
      {"gpt_neo", "attention_layers", list(R"(["global", "local"])"), "of each of the 4 layers"},
      {"gpt_neo", "attention_layers", Json("local"), "of each of the 4 layers"},
      {"gpt_neo", "window_size", Json(int64_t{0}), "window_size"},
      {"gptj", "rotary_dim", Json(int64_t{3}),
       "rotary_dim 3 must be even and at most the 8 dims of a head (n_embd / n_head)"},
      {"gptj", "rotary_dim", Json(int64_t{10}), "rotary_dim 10 must be even"},
      {"gptj", "tie_word_embeddings", Json(true), "the head has a bias"},
      {"gptj", "n_head", Json(int64_t{5}), "n_head 5 does not divide n_embd 32"},
      {"gpt_bigcode", "add_cross_attention", Json(true), "add_cross_attention true is not built"},
      {"gpt_bigcode", "n_layer", Json(int64_t{20000}), "n_layer is 20000; at most 10000 is right"},
      {"falcon", "alibi", Json(true), "alibi true is not in this version"},
      {"falcon_new", "num_ln_in_parallel_attn", Json(int64_t{3}),
       "num_ln_in_parallel_attn is 3; 1 or 2 is right"},
      {"falcon_new", "num_kv_heads", Json(int64_t{3}), "does not divide num_attention_heads 4"},
      {"falcon", "hidden_dropout", Json(0.1), "hidden_dropout is not in this version; 0 turns"},
      {"falcon", "attention_dropout", Json(0.1), "attention_dropout is not in this version; 0"},
      {"opt", "do_layer_norm_before", Json(false), "(OPT 350M) are not in this version"},
      {"opt", "word_embed_proj_dim", Json(int64_t{16}), "(OPT 350M) are not in this version"},
      {"opt", "layerdrop", Json(0.1), "layerdrop is not in this version; 0 turns it off"},
      {"opt", "pad_token_id", Json(int64_t{128}), "pad_token_id 128 is outside vocab_size 128"},
      {"bamba", "attn_layer_indices", list("[1, 3]"),
       "attn_layer_indices must be a list of numbers of layers, 0 to 2"},
      {"bamba", "attn_layer_indices", Json(int64_t{1}), "attn_layer_indices must be a list"},
      {"bamba", "mamba_n_heads", Json(int64_t{7}),
       "mamba_n_heads 7 times mamba_d_head 8 must be mamba_expand times hidden_size, 64"},
      {"bamba", "mamba_n_groups", Json(int64_t{3}), "does not divide mamba_n_heads 8"},
      {"bamba", "z_loss_coefficient", Json(0.1), "z_loss_coefficient of the model is not in this"},
      {"granitemoehybrid", "layer_types", list(R"(["mamba", "attention"])"),
       "layer_types must say of each of the 4 layers whether it is \"attention\""},
      {"granitemoehybrid", "layer_types", list(R"(["mamba", "attention", "mamba", "mlp"])"),
       "of each of the 4 layers"},
      {"granitemoehybrid", "position_embedding_type", Json("alibi"),
       "position_embedding_type 'alibi' is not known; rope, nope or null"},
      {"granite_swa", "layer_rope_theta", list("[0, 1e4]"),
       "layer_rope_theta must be a list of 4 numbers, one a layer; 0: the layer does not rotate"},
      {"granite_swa", "layer_rope_theta", list("[0, 1e4, 0.5, 0]"), "layer_rope_theta holds 0.5"},
      {"cwm", "attention_bias", Json(true), "transformers' CWM has no such biases"},
      {"minicpm", "sparse_config", Json::object(), "sparse_config is not in this version"},
      {"minicpm", "num_experts", Json(int64_t{8}), "num_experts is not in this version"},
      {"deepseek", "scoring_func", Json("sigmoid"), "scoring_func other than softmax is not"},
      {"deepseek", "moe_layer_freq", Json(int64_t{2}), "moe_layer_freq other than 1 is not"},
      {"chatglm", "rmsnorm", Json(false), "rmsnorm false is not in this version"},
      {"chatglm", "apply_residual_connection_post_layernorm", Json(true),
       "apply_residual_connection_post_layernorm true is not in this version"},
      {"chatglm", "multi_query_group_num", Json(int64_t{3}), "does not divide"},
      {"lfm2_biases_padding", "full_attn_idxs", list("[0, 3]"),
       "full_attn_idxs must be a list of numbers of layers, 0 to 2"},
      {"lfm2", "block_ffn_dim_multiplier", Json(0.0), "block_ffn_dim_multiplier leaves a width of"},
      {"bloom", "apply_residual_connection_post_layernorm", Json(true), "is not in this version"},
      {"bloom", "n_head", Json(int64_t{5}), "n_head 5 does not divide hidden_size 32"},
      {"mpt", "expansion_ratio", Json(int64_t{2}), "expansion_ratio other than 4 is not in this"},
      {"mpt", "no_bias", Json(false), "no_bias false is not in this version"},
      {"mpt", "logit_scale", Json("inv_sqrt_d_model"), "logit_scale is not in this version"},
      {"mpt", "attn_config", list(R"({"alibi": false})"), "attn_config.alibi false is not in this"},
      {"mpt", "attn_config", list(R"({"qk_ln": true})"), "attn_config.qk_ln true is not in this"},
      {"mpt", "attn_config", list(R"({"attn_type": "multiquery_attention"})"),
       "attn_config.attn_type"},
      {"mpt", "attn_config", list("[]"), "attn_config must be an object"},
      {"lfm2", "conv_L_cache", Json(int64_t{0}), "conv_L_cache"},
      {"lfm2", "layer_types", list(R"(["conv", "attention", "conv"])"), "layer_types"},
      {"granitemoe_swa", "layer_rope_theta", list("[0, 1e4]"),
       "layer_rope_theta must be a list of 4 numbers, one a layer; 0: the layer does not rotate"},
      {"mellum", "rope_parameters", list("[]"),
       "rope_parameters must be an object with one for each type of layer"},
      {"mellum", "mlp_layer_types", list(R"(["sparse"])"), "mlp_layer_types"},
      {"mellum", "sliding_window", Json(int64_t{0}), "sliding_window"},
      {"youtu", "kv_lora_rank", Json(int64_t{0}), "kv_lora_rank"},
      {"nanochat", "final_logit_softcapping", Json(-1.0), "final_logit_softcapping"},
      {"apertus", "hidden_act", Json("silu"), "hidden_act 'silu' is not in this version; xielu is"},
      {"afmoe", "score_func", Json("softmax"), "score_func 'softmax' is not built; built: sigmoid"},
      {"afmoe", "route_norm", Json(false), "route_norm false is not built in this version"},
      {"afmoe", "n_group", Json(int64_t{2}), "n_group is not built in this version"},
      {"llama4", "no_rope_layers", list("[1, 0]"), "no_rope_layers must be a list of 4 numbers"},
      {"llama4", "layer_types", list(R"(["sliding_attention", "a", "b", "c"])"),
       "layer_types holds 'sliding_attention'; known here: full_attention, chunked_attention"},
      {"llama4", "attention_chunk_size", Json(),
       "attention_chunk_size is null, but some layers are of chunked_attention"},
      {"llama4", "moe_layers", list("[4]"), "moe_layers must be a list of numbers of layers, 0 to"},
      {"llama4", "router_jitter_noise", Json(0.1), "router_jitter_noise"},
      {"llama4", "floor_scale", Json(int64_t{0}), "floor_scale"},
      {"llama4_tower", "text_config", Json("a"), "text_config is missing"},
      {"cohere2_moe", "expert_selection_fn", Json("top"),
       "expert_selection_fn 'top' is not known; softmax, sigmoid"},
      {"cohere2_moe", "shared_expert_combination_strategy", Json("max"),
       "shared_expert_combination_strategy 'max' is not known; average, sum"},
      {"cohere2_moe", "prefix_dense_intermediate_size", Json(), "prefix_dense_intermediate_size"},
      {"solar_open", "topk_group", Json(int64_t{9}), "topk_group"},
      {"vaultgemma", "query_pre_attn_scalar", Json(-1.0),
       "query_pre_attn_scalar is -1; it must be"},
      {"granite_swa", "attention_multiplier", Json(0.0), "attention_multiplier is 0"},
      {"cwm", "rope_parameters",
       list(R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 0})"),
       "rope_parameters.low_freq_factor is 0; it must be above 0"},
      {"cwm", "rope_parameters", list(R"({"rope_type": "yarn", "factor": 8, "beta_fast": -1})"),
       "rope_parameters.beta_fast is -1; it must be above 0"}};
  for (const auto& [golden, key, value, text] : wrong) {
    Json config = config_of(golden);
    EXPECT_EQ(problems_of(config), "") << golden;
    if (std::string(key) == "mamba_n_heads") config["mamba_d_head"] = Json(int64_t{8});
    if (std::string(key) == "full_attn_idxs") config.erase("layer_types");
    config[key] = value;
    EXPECT_THAT(problems_of(config), testing::HasSubstr(text)) << golden << "." << key;
  }
}

TEST(FamilyProblemsTest, GptNeosLayersAreGlobalAndLocalInTurnWhereNothingSaysMore) {
  Json config = config_of("gpt_neo");
  config.erase("attention_layers");
  config.erase("attention_types");
  EXPECT_EQ(attention_of_layers(config), "4/4 0 -1, 4/4 7 -1, 4/4 0 -1, 4/4 7 -1");
  config["attention_types"] = Json::parse(R"([[["local"], 3], [["global"], 1]])", "value");
  EXPECT_EQ(attention_of_layers(config), "4/4 7 -1, 4/4 7 -1, 4/4 7 -1, 4/4 0 -1");
  config["attention_types"] = Json::parse(R"([[["local"], 3]])", "value");
  EXPECT_THAT(problems_of(config), testing::HasSubstr("of each of the 4 layers"));
}

/// Granite 4's released files say "mamba" and "attention", what transformers saves of them
/// linear_attention and full_attention.
TEST(FamilyProblemsTest, Granite4sLayersHaveTwoNames) {
  Json config = config_of("granitemoehybrid");
  const std::string wanted = attention_of_layers(config);
  config.erase("layer_types");
  config["layers_block_type"] =
      Json::parse(R"(["mamba", "attention", "mamba", "attention"])", "value");
  EXPECT_EQ(attention_of_layers(config), wanted);
  config["position_embedding_type"] = Json("rope");
  EXPECT_EQ(attention_of_layers(config), "4/2 0 -1, 4/2 0 0, 4/2 0 -1, 4/2 0 0");
}

/// The sizes that Gemma 3's released config.json leaves out are its class's.
TEST(FamilyProblemsTest, AGemma3BesideItsTowerHasTheSizesOfItsClass) {
  Json config = config_of("gemma3_tower");
  config["text_config"] = Json::parse(R"({"model_type": "gemma3_text", "hidden_size": 2560,
      "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}})",
                                      "value");
  EXPECT_EQ(problems_of(config), "");
  const auto model = build_causal_lm(config, at::kBFloat16);
  const decoder::DecoderConfig& options = options_of(*model);
  EXPECT_EQ(options.vocab_size, 262208);
  EXPECT_EQ(options.num_heads, 8);
  EXPECT_EQ(options.num_kv_heads, 4);
  EXPECT_EQ(options.head_dim, 256);
  EXPECT_EQ(options.layers.size(), 34u);
  EXPECT_TRUE(options.is_head_tied);
  EXPECT_EQ(options.ropes[0].factor, 8.0);
}

/// LFM2's released files have other names of two keys, and say a width that is not the MLPs'.
TEST(FamilyProblemsTest, Lfm2sWidthIsMadeOfWhatItsFileSays) {
  Json config = config_of("lfm2");
  const auto width_of = [](const Json& of) {
    return options_of(*build_causal_lm(of, at::kFloat)).intermediate_size;
  };
  EXPECT_EQ(width_of(config), 40);  // two thirds of 56 are 37
  config["block_ff_dim"] = Json(int64_t{1000});
  config["block_ffn_dim_multiplier"] = Json(1.3);
  config["block_multiple_of"] = Json(int64_t{100});
  EXPECT_EQ(width_of(config), 900);  // 865
  config["block_ffn_dim_multiplier"] = Json();
  EXPECT_EQ(width_of(config), 666);
  config["block_auto_adjust_ff_dim"] = Json(false);
  EXPECT_EQ(width_of(config), 1000);
  config["tie_embedding"] = Json(false);
  EXPECT_FALSE(options_of(*build_causal_lm(config, at::kFloat)).is_head_tied);
}

TEST(FamilyProblemsTest, Lfm2sLayersAttendWhereOldFilesSay) {
  Json config = config_of("lfm2_biases_padding");
  const std::string wanted = attention_of_layers(config);
  EXPECT_EQ(wanted, "4/2 0 -1, 4/2 0 0, 4/2 0 -1");
  config.erase("layer_types");
  config["full_attn_idxs"] = Json::parse("[1]", "value");
  EXPECT_EQ(attention_of_layers(config), wanted);
  config.erase("full_attn_idxs");
  EXPECT_EQ(attention_of_layers(config), "4/2 0 0, 4/2 0 0, 4/2 0 0");
}

TEST(FamilyProblemsTest, WhatFilesLeaveOutIsWhatTheirClassesSay) {
  const auto options = [](const char* golden, std::initializer_list<const char*> without) {
    Json config = config_of(golden);
    for (const char* key : without) config.erase(key);
    EXPECT_EQ(problems_of(config), "") << golden;
    const auto model = build_causal_lm(config, at::kFloat);
    return options_of(*model);
  };
  EXPECT_TRUE(options("minicpm", {"tie_word_embeddings"}).is_head_tied);
  EXPECT_TRUE(options("exaone", {"tie_word_embeddings"}).is_head_tied);
  EXPECT_EQ(options("exaone", {"intermediate_size"}).intermediate_size, 128);
  EXPECT_EQ(options("opt", {"ffn_dim"}).intermediate_size, 3072);
  EXPECT_EQ(options("chatglm", {"multi_query_group_num"}).num_kv_heads, 1);
  Json config = config_of("cwm");
  config.erase("rope_parameters");
  config["rope_theta"] = Json(5e5);  // as the class, which has its own beside its own scaling
  EXPECT_EQ(options_of(*build_causal_lm(config, at::kFloat)).ropes[0].theta, 1e6);
}

TEST(FamilyProblemsTest, ReleasedNamesOfClassesAreKnown) {
  Json config = config_of("exaone_moe");
  config["architectures"] = Json::parse(R"(["ExaoneMoEForCausalLM"])", "value");
  EXPECT_EQ(find_family(config).architecture, "ExaoneMoeForCausalLM");
  config = config_of("chatglm");
  config["architectures"] = Json::parse(R"(["ChatGLMForConditionalGeneration"])", "value");
  EXPECT_EQ(find_family(config).architecture, "ChatGLMModel");
}

TEST(FamilyProblemsTest, SinksOfGraniteBeginAsZeros) {
  const auto model = build_causal_lm(config_of("granite_swa"), at::kFloat);
  int num_sinks = 0;
  for (const auto& [name, rule] : model->initial_values()) {
    if (!name.ends_with(".sinks")) continue;
    ++num_sinks;
    EXPECT_EQ(rule.kind, tensor::InitRule::Kind::kConstant) << name;
    EXPECT_EQ(rule.a, 0) << name;
  }
  EXPECT_EQ(num_sinks, 4);
}

/// What _init_weights of transformers' classes draws otherwise than most do.
TEST(FamilyProblemsTest, InitialValuesThatFewFamiliesHave) {
  const auto rule_of = [](const Json& config, const std::string& parameter) {
    for (const auto& [name, rule] : build_causal_lm(config, at::kFloat)->initial_values()) {
      if (name == parameter) return rule;
    }
    ADD_FAILURE() << "there is no " << parameter;
    return tensor::InitRule();
  };
  const std::string embedding = "model.embed_tokens.weight";
  const std::string output = "model.layers.1.attention.o_proj.weight";
  Json youtu = config_of("youtu");
  const double range = rule_of(youtu, output).b;
  youtu.erase("embedding_initializer_range");
  EXPECT_DOUBLE_EQ(rule_of(youtu, embedding).b, 2 * range);
  youtu["embedding_initializer_range"] = 0.25;
  EXPECT_DOUBLE_EQ(rule_of(youtu, embedding).b, 0.25);
  const Json nanochat = config_of("nanochat");
  const auto num_layers = static_cast<double>(nanochat.at("num_hidden_layers").as_int());
  const double of_mlp = rule_of(nanochat, "model.layers.1.mlp.down_proj.weight").b;
  EXPECT_DOUBLE_EQ(rule_of(nanochat, output).b, of_mlp / std::sqrt(2 * num_layers));
  for (const char* family : {"afmoe", "ernie4_5_moe"}) {
    const tensor::InitRule router = rule_of(config_of(family), "model.layers.1.mlp.router.weight");
    EXPECT_EQ(router.kind, tensor::InitRule::Kind::kConstant) << family;
    EXPECT_EQ(router.a, 0) << family;
  }
  const Json modernbert =
      Json::parse_file(test::source_file("tests/golden/classifiers/modernbert/config.json"));
  const tensor::InitRule projection =
      rule_of(modernbert, "model.layers.1.attention.qkv_proj.weight");
  EXPECT_EQ(projection.kind, tensor::InitRule::Kind::kTruncatedNormal);
  EXPECT_DOUBLE_EQ(projection.b, 0.02);
  EXPECT_DOUBLE_EQ(projection.cut, 0.04);
  EXPECT_DOUBLE_EQ(rule_of(modernbert, output).b, 0.02 / std::sqrt(8));
  EXPECT_DOUBLE_EQ(rule_of(modernbert, "model.pooler.weight").b, 0.02 / std::sqrt(8));
  EXPECT_DOUBLE_EQ(rule_of(modernbert, "lm_head.weight").b, 1 / std::sqrt(32));
}

/// Where norms of q and k are behind the rotation, a factor of its table changes nothing.
TEST(FamilyProblemsTest, NormsBehindARotationTakeItsFactorAway) {
  for (const char* family : {"llama4", "nanochat"}) {
    Json config = config_of(family);
    config["rope_parameters"] = Json::parse(
        R"({"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 16})", "value");
    EXPECT_EQ(options_of(*build_causal_lm(config, at::kFloat)).ropes[0].attention_factor, 1.0)
        << family;
  }
  Json plain = config_of("llama4");
  plain["use_qk_norm"] = false;
  EXPECT_EQ(options_of(*build_causal_lm(plain, at::kFloat)).ropes[0].attention_factor,
            std::nullopt);
}

TEST(FamilyProblemsTest, FactorsOfXieluBeginAsTheClasses) {
  const auto model = build_causal_lm(config_of("apertus"), at::kFloat);
  std::map<std::string, double> found;
  const std::string mlp = "model.layers.1.mlp.";
  for (const auto& [name, rule] : model->initial_values()) {
    if (!name.starts_with(mlp) || name.ends_with(".weight")) continue;
    EXPECT_EQ(rule.kind, tensor::InitRule::Kind::kConstant) << name;
    found[name.substr(mlp.size())] = rule.a;
  }
  ASSERT_EQ(found.size(), 4);
  EXPECT_NEAR(std::log1p(std::exp(found["alpha_p"])), 0.8, 1e-12);
  EXPECT_NEAR(std::log1p(std::exp(found["alpha_n"])), 0.3, 1e-12);
  EXPECT_EQ(found["beta"], 0.5);
  EXPECT_EQ(found["eps"], -1e-6);
}

TEST(FamilyProblemsTest, SlopesOfDistancesAreThoseOfTheClasses) {
  const auto slopes = [](Json config) {
    return options_of(*build_causal_lm(config, at::kFloat)).distance_slopes;
  };
  const auto near = [](const std::vector<double>& wanted) {
    return testing::Pointwise(testing::DoubleNear(1e-12), wanted);
  };
  EXPECT_THAT(slopes(config_of("bloom")), near({0.25, 0.0625, 0.015625, 0.00390625}));
  EXPECT_THAT(slopes(config_of("bloom_padding")),
              near({0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}));
  EXPECT_THAT(slopes(config_of("mpt_padding")),
              near({0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}));
  Json config = config_of("mpt");
  config["attn_config"] = Json::parse(R"({"alibi_bias_max": 16})", "value");
  EXPECT_THAT(slopes(config), near({0.0625, 0.00390625, 0.000244140625, 0.0000152587890625}));
}

TEST(FamilyProblemsTest, FalconsOldNamesOfSizesCount) {
  Json config = config_of("falcon");
  const size_t wanted = build_causal_lm(config, at::kFloat)->key_map().size();
  for (const auto& [old, usual] : {std::pair("n_embed", "hidden_size"),
                                   {"n_layer", "num_hidden_layers"},
                                   {"n_head", "num_attention_heads"}}) {
    config[old] = Json(config.at(usual));
    config.erase(usual);
  }
  EXPECT_EQ(problems_of(config), "");
  EXPECT_EQ(build_causal_lm(config, at::kFloat)->key_map().size(), wanted);
}

TEST(FamilyProblemsTest, ACwmWithoutRopeParametersStretchesLlama3s) {
  Json config = config_of("cwm");
  config.erase("rope_parameters");
  const auto model = build_causal_lm(config, at::kFloat);
  EXPECT_EQ(options_of(*model).ropes[0].theta, 1e6);
  EXPECT_EQ(options_of(*model).ropes[0].factor, 16.0);
  EXPECT_EQ(options_of(*model).ropes[0].original_max_positions, 8192);
}

TEST(FamilyProblemsTest, MiniCpmsScalesAreNoneWhereTheyAreNull) {
  Json config = config_of("minicpm3");
  EXPECT_NE(options_of(*build_causal_lm(config, at::kFloat)).residual_scale, 1.0);
  config["scale_depth"] = Json();
  config["dim_model_base"] = Json();
  EXPECT_EQ(problems_of(config), "");
  EXPECT_EQ(options_of(*build_causal_lm(config, at::kFloat)).residual_scale, 1.0);
  EXPECT_EQ(options_of(*build_causal_lm(config, at::kFloat)).logit_scale, 1.0);
}

}  // namespace
}  // namespace automodel::models
