// What config.json says of families whose layers have shapes of their own, and of Baichuan.
#include <gtest/gtest.h>

#include "models/read_config.h"

namespace automodel::models {
namespace {

TEST(LagunaConfigTest, EachLayerHasTheHeadsWindowAndRotationOfItsKind) {
  Json config = config_of("laguna");
  EXPECT_EQ(attention_of_layers(config), "4/2 0 0, 6/2 7 1, 6/2 7 1, 4/2 0 0");
  EXPECT_EQ(experts_of_layers(config), "deee");
  const auto ropes = options_of(*build_causal_lm(config, at::kFloat)).ropes;
  ASSERT_EQ(ropes.size(), 2);
  EXPECT_EQ(ropes[0].type, nn::RopeType::kYarn);
  EXPECT_EQ(ropes[0].rotary_dim, 8);
  EXPECT_EQ(ropes[1].theta, 1e4);
  EXPECT_EQ(ropes[1].rotary_dim, 16);
  config["swa_rope_parameters"] = *config["rope_parameters"].find("sliding_attention");
  config["rope_parameters"] = Json(*config["rope_parameters"].find("full_attention"));
  const auto older = options_of(*build_causal_lm(config, at::kFloat)).ropes;
  EXPECT_EQ(older[0].type, nn::RopeType::kYarn);
  EXPECT_EQ(older[1].rotary_dim, 16);
  config.erase("rope_parameters");
  config.erase("swa_rope_parameters");
  const auto standard = options_of(*build_causal_lm(config, at::kFloat)).ropes;
  EXPECT_EQ(standard[0].theta, 5e5);
  EXPECT_EQ(standard[0].rotary_dim, 8);
  EXPECT_EQ(standard[1].rotary_dim, 16);
}

TEST(LagunaConfigTest, ReadsWhichLayersHaveExperts) {
  Json config = config_of("laguna_elements_padding");
  EXPECT_EQ(experts_of_layers(config), "eded");
  config.erase("mlp_layer_types");
  EXPECT_EQ(experts_of_layers(config), "deee");
  config["mlp_only_layers"] = Json(Json::Array{Json(int64_t{0}), Json(int64_t{2})});
  EXPECT_EQ(experts_of_layers(config), "dede");
}

TEST(LagunaConfigTest, SaysWhatIsWrong) {
  const auto problems = [](const char* key, const Json& value) {
    Json config = config_of("laguna");
    config[key] = value;
    return problems_of(config);
  };
  EXPECT_EQ(problems_of(config_of("laguna")), "");
  EXPECT_EQ(problems("gating", Json(true)), "");
  EXPECT_EQ(problems("gating", "per_element"), "");
  EXPECT_EQ(problems("gating", Json(false)),
            "gating 'none' is not built; built: per-head, per-element");
  EXPECT_EQ(problems("gating_types", Json(Json::Array(4, Json("per-element")))), "");
  EXPECT_EQ(problems("gating_types",
                     Json(Json::Array{Json("head"), Json("head"), Json("head"), Json("element")})),
            "gating_types must have the same entry for each layer in this version");
  EXPECT_EQ(problems("num_attention_heads_per_layer", Json(Json::Array{Json(int64_t{4})})),
            "num_attention_heads_per_layer must be a list with a number of heads for each layer");
  EXPECT_EQ(problems("num_attention_heads_per_layer", Json(Json::Array(4, Json(int64_t{5})))),
            "num_key_value_heads 2 does not divide the 5 heads of layer 0 "
            "(num_attention_heads_per_layer)");
  for (const char* key : {"attention_bias", "qkv_bias", "swa_attention_sink_enabled",
                          "moe_apply_router_weight_on_input"}) {
    EXPECT_EQ(problems(key, Json(true)), cat(key, " true is not built in this version"));
  }
  EXPECT_EQ(problems("moe_router_logit_softcapping", Json(30.0)),
            "moe_router_logit_softcapping is not built in this version; 0 turns it off");
}

/// A released config.json of MiMo-V2-Flash, smaller.
Json released_mimo() {
  Json config = config_of("mimo_v2_flash");
  for (const char* key : {"layer_types", "mlp_layer_types", "rope_parameters", "rms_norm_eps"}) {
    config.erase(key);
  }
  const auto bits = [](std::initializer_list<int64_t> values) {
    Json::Array list;
    for (const int64_t value : values) list.emplace_back(value);
    return Json(std::move(list));
  };
  config["hybrid_layer_pattern"] = bits({0, 1, 1, 0});
  config["moe_layer_freq"] = bits({0, 1, 1, 1});
  config["sliding_window"] = int64_t{6};
  config["sliding_window_size"] = int64_t{6};
  config["swa_num_key_value_heads"] = int64_t{4};
  config["swa_num_attention_heads"] = int64_t{8};
  config["swa_head_dim"] = int64_t{24};
  config["swa_v_head_dim"] = int64_t{16};
  config["rope_theta"] = 5e6;
  config["swa_rope_theta"] = 1e4;
  config["partial_rotary_factor"] = 0.334;
  config["rope_scaling"] = Json();
  config["layernorm_epsilon"] = 1e-5;
  config["n_shared_experts"] = Json();
  config["routed_scaling_factor"] = Json();
  config["scoring_func"] = "sigmoid";
  config["topk_method"] = "noaux_tc";
  return config;
}

TEST(MiMoConfigTest, ReleasedFilesSayTheSameAsTransformers) {
  const auto ours = build_causal_lm(config_of("mimo_v2_flash"), at::kFloat);
  const auto released = build_causal_lm(released_mimo(), at::kFloat);
  EXPECT_EQ(attention_of_layers(released_mimo()), "8/2 0 0, 8/4 7 1, 8/4 7 1, 8/2 0 0");
  EXPECT_EQ(attention_of_layers(config_of("mimo_v2_flash")), attention_of_layers(released_mimo()));
  EXPECT_EQ(experts_of_layers(released_mimo()), "deee");
  const decoder::DecoderConfig& one = options_of(*ours);
  const decoder::DecoderConfig& other = options_of(*released);
  EXPECT_EQ(one.norm_eps, other.norm_eps);
  EXPECT_EQ(one.value_scale, other.value_scale);
  for (const size_t rope : {0, 1}) {
    EXPECT_EQ(one.ropes[rope].theta, other.ropes[rope].theta);
    EXPECT_EQ(one.ropes[rope].rotary_dim, 8);
    EXPECT_EQ(other.ropes[rope].rotary_dim, 8);
  }
  ASSERT_EQ(ours->key_map().size(), released->key_map().size());
}

TEST(MiMoConfigTest, SinksAreOfLayersWithAWindowAndDoNotTrain) {
  const auto sinks_of = [](const Json& config) {
    std::string names;
    const auto model = build_causal_lm(config, at::kFloat);
    for (const auto& item : model->named_parameters()) {
      if (!item.key().ends_with("sinks")) continue;
      EXPECT_FALSE(item.value().requires_grad());
      names += item.key().substr(13, 1);
    }
    return names;
  };
  Json config = config_of("mimo_v2_flash");
  EXPECT_EQ(sinks_of(config), "12");
  config["add_full_attention_sink_bias"] = Json(true);
  EXPECT_EQ(sinks_of(config), "0123");
  config["add_full_attention_sink_bias"] = Json(false);
  config["add_swa_attention_sink_bias"] = Json(false);
  EXPECT_EQ(sinks_of(config), "");
}

TEST(MiMoConfigTest, SaysWhatIsWrong) {
  const auto problems = [](const char* key, const Json& value) {
    Json config = released_mimo();
    config[key] = value;
    return problems_of(config);
  };
  EXPECT_EQ(problems_of(released_mimo()), "");
  constexpr const char* kBits = " must be a list of zeros and ones, one for each layer";
  EXPECT_EQ(problems("hybrid_layer_pattern", Json(Json::Array(4, Json(int64_t{2})))),
            cat("hybrid_layer_pattern", kBits));
  EXPECT_EQ(problems("moe_layer_freq", Json(Json::Array{Json(int64_t{1})})),
            cat("moe_layer_freq", kBits));
  EXPECT_EQ(problems("swa_head_dim", Json(int64_t{8})),
            "swa_head_dim is not the 24 of the other layers");
  EXPECT_EQ(problems("swa_v_head_dim", Json(int64_t{8})),
            "swa_v_head_dim is not the 16 of the other layers");
  EXPECT_EQ(problems("swa_num_key_value_heads", Json(int64_t{3})),
            "layers with a window have 3 heads of keys (swa_num_key_value_heads, or twice "
            "num_key_value_heads), which do not divide their 8 heads");
  EXPECT_EQ(problems("n_shared_experts", Json(int64_t{1})),
            "n_shared_experts is not built for this family; its files have none");
  EXPECT_EQ(problems("scoring_func", "softmax"),
            "scoring_func 'softmax' is not built; built: sigmoid");
  EXPECT_EQ(problems("attention_projection_layout", "fused_qkv"),
            "attention_projection_layout 'fused_qkv' is not built; built: split");
  Json scaling = Json::object();
  scaling["type"] = "yarn";
  EXPECT_EQ(problems("rope_scaling", scaling), "rope_scaling is not built for this family");
}

TEST(DeciLMConfigTest, LayersHaveWhatTheirBlocksSay) {
  const auto sizes = [](const Json& config) {
    const decoder::DecoderConfig read = options_of(*build_causal_lm(config, at::kFloat));
    std::vector<std::string> out;
    for (const decoder::LayerOptions& layer : read.layers) {
      out.push_back(cat(layer.has_attention() ? read.kv_heads_of(layer) : 0, "/",
                        layer.has_mlp ? read.intermediate_of(layer) : 0));
    }
    return join(out, ", ");
  };
  Json config = config_of("decilm");
  EXPECT_EQ(sizes(config), "2/256, 0/512, 1/0, 4/512");
  config["block_configs"].as_array()[0]["ffn"]["intermediate_size"] = int64_t{40};
  EXPECT_EQ(sizes(config), "2/40, 0/512, 1/0, 4/512");
}

TEST(DeciLMConfigTest, SaysWhatIsWrong) {
  const auto problems = [](const char* part, const char* key, const Json& value) {
    Json config = config_of("decilm");
    config["block_configs"].as_array()[0][part][key] = value;
    return problems_of(config);
  };
  EXPECT_EQ(problems("attention", "n_heads_in_group", Json(int64_t{3})),
            "block_configs.0.attention.n_heads_in_group 3 does not divide num_attention_heads 4");
  EXPECT_EQ(problems("attention", "n_heads_in_group", Json()),
            "block_configs.0.attention.n_heads_in_group is missing");
  EXPECT_EQ(problems("attention", "replace_with_linear", Json(true)),
            "block_configs.0.attention.replace_with_linear true is not built for this family");
  EXPECT_EQ(problems("attention", "window_length", Json(int64_t{64})),
            "block_configs.0.attention.window_length 64 is not built for this family");
  EXPECT_EQ(problems("ffn", "ffn_mult", Json(0.0)),
            "block_configs.0.ffn.ffn_mult must be above 0 and at most 10000, not 0");
  EXPECT_EQ(problems("ffn", "ffn_mult", Json(1e300)),
            "block_configs.0.ffn.ffn_mult must be above 0 and at most 10000, not 1e+300");
  Json config = config_of("decilm");
  config["block_configs"].as_array()[1]["ffn"]["no_op"] = Json(true);
  EXPECT_EQ(problems_of(config), "block_configs.1 has neither attention nor an MLP");
  config["block_configs"].as_array().pop_back();
  EXPECT_EQ(problems_of(config), "block_configs must be a list with an entry for each of 4 layers");
}

TEST(Gemma4ConfigTest, HeadsOfFullLayersAreReadInBothForms) {
  Json config = config_of("gemma4");
  EXPECT_EQ(attention_of_layers(config), "4/2 7 1, 4/1 0 0, 4/2 7 1, 4/1 0 0");
  const auto keys = build_causal_lm(config, at::kFloat)->key_map();
  config.erase("per_layer_config");
  config["global_head_dim"] = int64_t{32};
  config["num_global_key_value_heads"] = int64_t{1};
  EXPECT_EQ(attention_of_layers(config), "4/2 7 1, 4/1 0 0, 4/2 7 1, 4/1 0 0");
  const auto found = build_causal_lm(config, at::kFloat)->key_map();
  ASSERT_EQ(found.size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(found[i].shape, keys[i].shape);
  config["attention_k_eq_v"] = Json(false);  // then the number of heads is everyone's
  EXPECT_EQ(attention_of_layers(config), "4/2 7 1, 4/2 0 0, 4/2 7 1, 4/2 0 0");
  config["layer_types"] = Json(Json::Array(4, Json("sliding_attention")));
  EXPECT_EQ(attention_of_layers(config), "4/2 7 1, 4/2 7 1, 4/2 7 1, 4/2 0 0");
}

TEST(Gemma4ConfigTest, TheLastLayersSeeTheKeysOfTheLastOfTheirKindBefore) {
  const auto key_layers = [](const Json& config) {
    std::string out;
    const decoder::DecoderConfig read = options_of(*build_causal_lm(config, at::kFloat));
    for (const decoder::LayerOptions& layer : read.layers) {
      out += cat(layer.key_layer, layer.gives_keys ? "! " : " ", layer.intermediate_size, ", ");
    }
    return out;
  };
  Json config = config_of("gemma4_layer_inputs");
  EXPECT_EQ(key_layers(config), "-1 0, -1! 0, -1! 0, 1 112, 1 112, 2 112, ");
  config["use_double_wide_mlp"] = Json(false);
  config["num_kv_shared_layers"] = int64_t{2};
  EXPECT_EQ(key_layers(config), "-1 0, -1 0, -1! 0, -1! 0, 3 0, 2 0, ");
  config["num_kv_shared_layers"] = int64_t{0};
  EXPECT_EQ(key_layers(config), "-1 0, -1 0, -1 0, -1 0, -1 0, -1 0, ");
  config["num_kv_shared_layers"] = int64_t{6};
  EXPECT_EQ(problems_of(config),
            "num_kv_shared_layers 6 leaves none of 6 layers whose keys the others could see");
  config["num_kv_shared_layers"] = int64_t{4};
  EXPECT_EQ(problems_of(config),
            "num_kv_shared_layers 4 leaves no full layer whose keys layer 2 could see");
  config["num_kv_shared_layers"] = int64_t{3};
  config["per_layer_config"]["4"]["head_dim"] = int64_t{16};
  config["per_layer_config"]["4"]["num_key_value_heads"] = int64_t{1};
  EXPECT_EQ(problems_of(config),
            "layer 4 has heads of other sizes than layer 1, whose keys it sees");
}

TEST(Gemma4ConfigTest, KeysThatNoLayerReadsAreKept) {
  const auto kept =
      build_causal_lm(config_of("gemma4_everything_padding"), at::kFloat)->kept_prefixes();
  EXPECT_EQ(kept, (std::vector<std::string>{
                      "model.layers.3.self_attn.k_proj.", "model.layers.3.self_attn.v_proj.",
                      "model.layers.3.self_attn.k_norm.", "model.layers.4.self_attn.k_proj.",
                      "model.layers.4.self_attn.v_proj.", "model.layers.4.self_attn.k_norm."}));
}

TEST(Gemma4ConfigTest, SaysWhatIsNotBuilt) {
  const auto problems = [](const char* key, const Json& value) {
    Json config = config_of("gemma4");
    config[key] = value;
    return problems_of(config);
  };
  EXPECT_EQ(problems_of(config_of("gemma4")), "");
  Json absent = config_of("gemma4");
  absent.erase("hidden_size_per_layer_input");
  const auto inputs_of = [](const Json& config) {
    return options_of(*build_causal_lm(config, at::kFloat)).layer_inputs;
  };
  ASSERT_TRUE(inputs_of(absent).has_value());
  EXPECT_EQ(inputs_of(absent)->dim, 256);  // transformers' default
  absent["hidden_size_per_layer_input"] = Json();
  EXPECT_FALSE(inputs_of(absent).has_value());
  EXPECT_EQ(problems_of(config_of("gemma4_unified")), "");
  Json unified = config_of("gemma4_unified");
  unified["enable_moe_block"] = Json(true);
  EXPECT_EQ(problems_of(unified),
            "Gemma 4 Unified has neither inputs of each layer (hidden_size_per_layer_input) nor "
            "experts (enable_moe_block)");
  EXPECT_EQ(problems("use_bidirectional_attention", "vision"), "");
  EXPECT_EQ(problems("use_bidirectional_attention", "all"),
            "use_bidirectional_attention must be null or \"vision\": text is read causally");
  EXPECT_EQ(problems("per_layer_config", Json(int64_t{1})),
            "per_layer_config must be an object, not an integer");
}

TEST(Gemma4ConfigTest, TensorsOfTowersAreKept) {
  EXPECT_EQ(build_causal_lm(config_of("gemma4_towers"), at::kFloat)->kept_prefixes(),
            (std::vector<std::string>{"model.vision_tower.", "model.embed_vision.",
                                      "model.audio_tower.", "model.embed_audio."}));
  EXPECT_EQ(build_causal_lm(config_of("gemma4_unified_embedders"), at::kFloat)->kept_prefixes(),
            (std::vector<std::string>{"model.vision_embedder.", "model.embed_vision.",
                                      "model.embed_audio."}));
}

TEST(MuseConfigTest, EveryFourthLayerFromTheLastSeesAllAndDoesNotRotate) {
  Json config = config_of("muse_glimmer");
  EXPECT_EQ(attention_of_layers(config), "4/2 7 0, 4/2 7 0, 4/2 7 0, 4/2 0 -1");
  for (const char* key : {"layer_types", "layer_rope_theta"}) config["text_config"].erase(key);
  EXPECT_EQ(attention_of_layers(config), "4/2 7 0, 4/2 7 0, 4/2 7 0, 4/2 0 -1");
  EXPECT_EQ(attention_of_layers(config_of("muse_glimmer_thetas_padding")),
            "4/2 9 0, 4/2 0 -1, 4/2 0 -1, 4/2 0 0");
}

TEST(MuseConfigTest, SaysWhatIsWrong) {
  const auto problems = [](const char* key, const Json& value) {
    Json config = config_of("muse_glimmer");
    config["text_config"][key] = value;
    return problems_of(config);
  };
  EXPECT_EQ(problems_of(config_of("muse_glimmer")), "");
  EXPECT_EQ(problems("attention_bias", Json(true)),
            "text_config.attention_bias true is not built in this version");
  EXPECT_EQ(problems("layer_rope_theta", Json(Json::Array(3, Json(0.0)))),
            "text_config.layer_rope_theta must be a list with a number for each layer");
  EXPECT_EQ(problems("layer_rope_theta", Json(Json::Array(4, Json(1e4)))),
            "text_config.layer_rope_theta has 10000 beside rope_theta 5e+05; layers with their "
            "own are not built");
  Json older = config_of("muse_glimmer");
  older.erase("text_config");
  older["output_soft_cap_temp"] = 20.0;
  EXPECT_TRUE(problems_of(older).starts_with(
      "this is the older form of config.json; built is the one with text_config\n"));
}

TEST(BaichuanConfigTest, SaysWhatIsNotThe7BModels) {
  const auto problems = [](const char* key, const Json& value) {
    Json config = config_of("baichuan");
    config[key] = value;
    return problems_of(config);
  };
  EXPECT_EQ(problems_of(config_of("baichuan")), "");
  constexpr const char* kLarger =
      "this is a Baichuan 13B, whose attention has biases by distance (ALiBi) and no rotation; "
      "built is the 7B model";
  EXPECT_EQ(problems("max_position_embeddings", Json()), kLarger);
  Json larger = config_of("baichuan");
  larger["hidden_size"] = int64_t{5120};
  larger["num_attention_heads"] = int64_t{40};
  EXPECT_EQ(problems_of(larger), kLarger);
  constexpr const char* kRows =
      "q, k and v of this family's models have hidden_size rows each: num_key_value_heads and "
      "head_dim do not change them";
  EXPECT_EQ(problems("num_key_value_heads", Json(int64_t{2})), kRows);
  EXPECT_EQ(problems("head_dim", Json(int64_t{16})), kRows);
  constexpr const char* kRotation =
      "this family rotates by theta 10000 alone: no rope_theta or rope_scaling";
  EXPECT_EQ(problems("rope_theta", Json(5e5)), kRotation);
  EXPECT_EQ(problems("rope_theta", Json(1e4)), "");
  Json scaling = Json::object();
  scaling["type"] = "linear";
  scaling["factor"] = 2.0;
  EXPECT_EQ(problems("rope_scaling", scaling), kRotation);
  EXPECT_EQ(problems("z_loss_weight", Json(0.1)),
            "z_loss_weight is not built in this version; 0 turns it off");
  EXPECT_EQ(problems("tie_word_embeddings", Json(true)),
            "tie_word_embeddings is true; this family's head has rows of length 1, the embedding "
            "not");
}

}  // namespace
}  // namespace automodel::models
