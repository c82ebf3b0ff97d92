#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "models/decoder/decoder_model.h"
#include "models/golden_families.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

Json shipped(const std::string& name) {
  return Json::parse_file(test::source_file(cat("configs/", name, "/config.json")));
}

Json tiny_llama() {
  return shipped("tiny/llama");
}

const models::decoder::DecoderConfig& decoder_config(const models::CausalLM& model) {
  return dynamic_cast<const models::decoder::DecoderModel&>(model).config();
}

int64_t num_parameters(const models::CausalLM& model) {
  int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  return count;
}

/// A key's values in the config.json files of tests/golden, sorted.
template <typename Read>
std::set<std::string> of_goldens(const Read& read) {
  std::vector<std::string> names = test::golden_families();
  names.emplace_back("diffusion_gemma");
  for (const char* encoder :
       {"bert", "camembert", "distilbert", "modernbert", "roberta", "xlm_roberta"}) {
    names.push_back(cat("classifiers/", encoder));
  }
  for (const char* own : {"t5", "mt5"}) names.push_back(cat("encoder_decoders/", own));
  std::set<std::string> values;
  for (const std::string& name : names) {
    values.insert(
        read(Json::parse_file(test::source_file(cat("tests/golden/", name, "/config.json")))));
  }
  return values;
}

TEST(Catalog, KnowsTheArchitecturesThatGoldensProve) {
  EXPECT_THAT(models::known_architectures(), ElementsAreArray(of_goldens([](const Json& config) {
                return config.at("architectures").as_array().at(0).as_string();
              })));
}

TEST(Catalog, FindsAFamilyByModelTypeWithoutArchitectures) {
  Json config = tiny_llama();
  config.erase("architectures");
  const models::FamilyCheck check = models::find_family(config);
  EXPECT_TRUE(check.is_known);
  EXPECT_EQ(check.architecture, "LlamaForCausalLM");
}

TEST(Catalog, ModelsThatAutoModelSavesAreThoseOfTheirType) {
  const auto architecture_of = [](const char* name, const char* type) {
    Json config = tiny_llama();
    config["architectures"] = Json(Json::Array{Json(name)});
    config["model_type"] = Json(type);
    const models::FamilyCheck check = models::find_family(config);
    return check.is_known ? check.architecture : "none";
  };
  EXPECT_EQ(architecture_of("LlamaModel", "llama"), "LlamaForCausalLM");
  EXPECT_EQ(architecture_of("LlamaForSequenceClassification", "llama"), "LlamaForCausalLM");
  EXPECT_EQ(architecture_of("LlamaForTokenClassification", "llama"), "none");
  EXPECT_EQ(architecture_of("LlamaModel", "qwen2"), "none");
  EXPECT_EQ(architecture_of("LlamaForCausalLMM", "llama"), "none");
}

TEST(Catalog, UnknownArchitectureIsUnsupportedAndNamesTheNearest) {
  Json config = tiny_llama();
  config["architectures"] = Json(Json::Array{Json("Qwen4ForCausalLM")});
  try {
    models::build_causal_lm(config, at::kFloat);
    FAIL();
  } catch (const UnsupportedError& error) {
    EXPECT_EQ(error.what(), cat("the model class Qwen4ForCausalLM is not built in this version; "
                                "did you mean 'Qwen2ForCausalLM'?; built: ",
                                join(models::known_architectures(), ", ")));
  }
}

TEST(Catalog, ConfigWithoutAnyNameSaysSo) {
  const std::set<std::string> types =
      of_goldens([](const Json& config) { return config.at("model_type").as_string(); });
  EXPECT_EQ(models::find_family(Json::object()).reason,
            cat("config.json has neither architectures nor model_type; built: ",
                join(std::vector<std::string>(types.begin(), types.end()), ", ")));
}

TEST(CheckConfig, MissingSizesAreAllNamed) {
  Json config = tiny_llama();
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads"}) {
    config.erase(key);
  }
  EXPECT_THAT(
      models::check_config(config),
      ElementsAre("vocab_size is missing", "hidden_size is missing", "intermediate_size is missing",
                  "num_hidden_layers is missing", "num_attention_heads is missing",
                  "num_key_value_heads 2 does not divide num_attention_heads 1"));
}

struct WrongValue {
  const char* key;
  const char* value;  ///< JSON
  const char* text;
};

void PrintTo(const WrongValue& wrong, std::ostream* out) {
  *out << wrong.key << ": " << wrong.value;
}

class WrongValueTest : public testing::TestWithParam<WrongValue> {};

TEST_P(WrongValueTest, IsNamed) {
  Json config = tiny_llama();
  config.erase("head_dim");
  config[GetParam().key] = Json::parse(GetParam().value, "value");
  EXPECT_THAT(models::check_config(config), ElementsAre(GetParam().text));
  EXPECT_THROW(models::build_causal_lm(config, at::kFloat), InputError);
}

INSTANTIATE_TEST_SUITE_P(
    Llama, WrongValueTest,
    testing::Values(
        WrongValue{
            "num_attention_heads", "6",
            "num_attention_heads 6 does not divide hidden_size 64, and there is no head_dim"},
        WrongValue{"num_key_value_heads", "3",
                   "num_key_value_heads 3 does not divide num_attention_heads 4"},
        WrongValue{"intermediate_size", "-3", "intermediate_size is -3; it must be at least 1"},
        WrongValue{"vocab_size", "\"2k\"",
                   "vocab_size must be a whole number, not a string (\"2k\")"},
        WrongValue{"vocab_size", "12.5", "vocab_size must be a whole number, not a number (12.5)"},
        WrongValue{"hidden_act", "\"sine\"",
                   "hidden_act 'sine' is not an activation known here; known: silu, swish, gelu, "
                   "gelu_new, gelu_fast, gelu_pytorch_tanh, relu, relu2"},
        WrongValue{"attention_dropout", "1.5",
                   "attention_dropout is 1.5; a dropout probability lies in [0, 1)"},
        WrongValue{"pad_token_id", "4000", "pad_token_id 4000 is outside vocab_size 2048"},
        WrongValue{"tie_word_embeddings", "1",
                   "tie_word_embeddings must be true or false, not an integer (1)"},
        WrongValue{"rope_scaling", R"({"rope_type": "spiral", "factor": 2})",
                   "rope_type 'spiral' is not known here; known: default, linear, dynamic, llama3, "
                   "yarn, longrope, proportional"},
        WrongValue{"rope_scaling", R"({"type": "linear"})", "rope_parameters.factor is missing"},
        WrongValue{"rope_scaling", R"({"type": "linear", "factor": -1})",
                   "rope_parameters.factor is -1; it must be above 0"},
        WrongValue{"rope_scaling", R"({"type": "longrope", "short_factor": [1], "long_factor":
                                      [1, 1, 1, 1, 1, 1, 1, 1]})",
                   "rope_parameters.short_factor must be a list of 8 numbers (half the rotated "
                   "dims)"}));

/// The first unknown type is enough to say.
TEST(CheckConfig, LayerTypesMustFitTheLayers) {
  Json config = shipped("tiny/qwen3");
  config["layer_types"] = Json::parse(R"(["full_attention", "chunked_attention", "x"])", "value");
  EXPECT_THAT(models::check_config(config),
              ElementsAre("layer_types holds 'chunked_attention'; known here: full_attention, "
                          "sliding_attention",
                          "layer_types has 3 entries for num_hidden_layers 2"));
}

TEST(CheckConfig, ShippedConfigsAreRight) {
  for (const char* name : {"tiny/llama", "tiny/qwen2", "tiny/qwen3", "tiny/mistral", "tiny/phi3",
                           "tiny/gemma", "tiny/gemma2", "tiny/gemma3", "tiny/gpt2", "tiny/olmo2",
                           "tiny/granite", "quickstart_llama"}) {
    EXPECT_THAT(models::check_config(shipped(name)), IsEmpty()) << name;
  }
}

TEST(BuildCausalLm, ShippedSizesHaveThePublishedParameterCounts) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"llama3.2-1b", 1235814400},   {"llama3.2-3b", 3212749824},   {"llama3.1-8b", 8030261248},
      {"llama3.3-70b", 70553706496}, {"qwen2.5-0.5b", 494032768},   {"qwen2.5-1.5b", 1543714304},
      {"qwen2.5-7b", 7615616512},    {"qwen3-0.6b", 596049920},     {"qwen3-1.7b", 1720574976},
      {"qwen3-4b", 4022468096},      {"qwen3-8b", 8190735360},      {"qwen3-14b", 14768307200},
      {"qwen3-32b", 32762123264},    {"qwen3-30b-a3b", 30532122624}};
  for (const auto& [name, count] : sizes) {
    EXPECT_EQ(num_parameters(*models::build_causal_lm(shipped(name), at::kBFloat16)), count)
        << name;
  }
}

TEST(ReadConfig, OldAndNewRopeFormsAreTheSame) {
  Json old_form = tiny_llama();
  const Json parameters = old_form.at("rope_parameters");
  old_form.erase("rope_parameters");
  old_form["rope_theta"] = parameters.at("rope_theta");
  Json scaling = parameters;
  scaling.erase("rope_theta");
  old_form["rope_scaling"] = scaling;
  const auto new_model = models::build_causal_lm(tiny_llama(), at::kFloat);
  const auto old_model = models::build_causal_lm(old_form, at::kFloat);
  const nn::RopeOptions& expected = decoder_config(*new_model).ropes.at(0);
  const nn::RopeOptions& found = decoder_config(*old_model).ropes.at(0);
  EXPECT_EQ(found.type, nn::RopeType::kLlama3);
  EXPECT_EQ(nn::rope_frequencies(found, 64).values, nn::rope_frequencies(expected, 64).values);
}

TEST(ReadConfig, OldGemma3FormHasTwoThetas) {
  Json config = shipped("tiny/gemma3");
  config.erase("rope_parameters");
  config.erase("layer_types");
  config["rope_theta"] = 500000.0;
  config["rope_local_base_freq"] = 20000.0;
  config["rope_scaling"] = Json::parse(R"({"factor": 8.0, "rope_type": "linear"})", "value");
  config["sliding_window_pattern"] = 2;
  const auto model = models::build_causal_lm(config, at::kFloat);
  const models::decoder::DecoderConfig& decoder = decoder_config(*model);
  EXPECT_EQ(decoder.ropes.at(0).theta, 500000.0);
  EXPECT_EQ(decoder.ropes.at(0).type, nn::RopeType::kLinear);
  EXPECT_EQ(decoder.ropes.at(1).theta, 20000.0);
  EXPECT_EQ(decoder.ropes.at(1).type, nn::RopeType::kDefault);
  EXPECT_EQ(decoder.layers.at(0).rope, 1);
  EXPECT_EQ(decoder.layers.at(0).window, 128);
  EXPECT_EQ(decoder.layers.at(1).rope, 0);
  EXPECT_EQ(decoder.layers.at(1).window, 0);
}

/// What families read of rotations as their classes in transformers do, and not as their relatives.
TEST(ReadConfig, RopeKeysThatAFamilyDoesNotHaveChangeNothing) {
  const auto golden = [](const char* name) {
    return Json::parse_file(test::source_file(cat("tests/golden/", name, "/config.json")));
  };
  const auto ropes = [](const Json& config) {
    return decoder_config(*models::build_causal_lm(config, at::kFloat)).ropes;
  };
  Json gemma4 = golden("gemma4");
  gemma4["rope_parameters"]["sliding_attention"]["partial_rotary_factor"] = 0.5;
  gemma4["rope_theta"] = 77.0;
  gemma4["rope_parameters"]["sliding_attention"].erase("rope_theta");
  const auto sliding = ropes(gemma4).at(1);
  EXPECT_EQ(sliding.rotary_dim, ropes(golden("gemma4")).at(1).rotary_dim);
  EXPECT_EQ(sliding.theta, 1e4);
  Json neox = golden("gpt_neox");
  neox.erase("rope_parameters");
  neox["rotary_pct"] = 0.5;
  const int64_t half = ropes(neox).at(0).rotary_dim;
  neox["partial_rotary_factor"] = 1.0;
  EXPECT_EQ(ropes(neox).at(0).rotary_dim, half);
  Json olmo3 = golden("olmo3");
  olmo3.erase("rope_parameters");
  olmo3["rope_local_base_freq"] = 77.0;
  EXPECT_EQ(ropes(olmo3).at(1).theta, 5e5);
  Json muse = golden("muse_glimmer");
  muse["text_config"].erase("rope_parameters");
  muse["text_config"].erase("layer_rope_theta");
  EXPECT_EQ(ropes(muse).at(0).theta, 1e4);
}

/// transformers' classes take a default where the key is absent, and null for whole heads.
TEST(ReadConfig, ANullPartOfHeadsIsAllOfThem) {
  Json config = Json::parse_file(test::source_file("tests/golden/glm/config.json"));
  config.erase("rope_parameters");
  config.erase("partial_rotary_factor");
  const auto rotated = [](const Json& json) {
    return decoder_config(*models::build_causal_lm(json, at::kFloat)).ropes.at(0).rotary_dim;
  };
  const int64_t half = rotated(config);
  config["partial_rotary_factor"] = Json();
  EXPECT_EQ(rotated(config), 2 * half);
}

TEST(ReadConfig, OtherNamesOfKeysAreRead) {
  const auto golden = [](const char* name) {
    return Json::parse_file(test::source_file(cat("tests/golden/", name, "/config.json")));
  };
  Json ernie = golden("ernie4_5_moe");
  ernie.erase("moe_k");
  ernie["num_experts_per_tok"] = int64_t{2};
  EXPECT_EQ(decoder_config(*models::build_causal_lm(ernie, at::kFloat)).moe->n_activated_experts,
            2);
  Json gpt2 = golden("gpt2");
  gpt2.erase("n_positions");
  gpt2["max_position_embeddings"] = int64_t{40};
  EXPECT_EQ(decoder_config(*models::build_causal_lm(gpt2, at::kFloat)).max_positions, 40);
  gpt2["n_positions"] = int64_t{50};
  EXPECT_NE(test::error_of<UserError>([&] {
              models::build_causal_lm(gpt2, at::kFloat);
            }).find("n_positions 50 and max_position_embeddings 40 are two names of one value"),
            std::string::npos);
}

TEST(ReadConfig, WhatAFamilyDoesNotComputeIsRefused) {
  const auto refusal = [](const char* name, const char* key, const Json& value) {
    Json config = Json::parse_file(test::source_file(cat("tests/golden/", name, "/config.json")));
    if (config.contains("rope_parameters")) config["rope_parameters"].erase(key);
    config[key] = value;
    return test::error_of<UserError>([&] { models::build_causal_lm(config, at::kFloat); });
  };
  EXPECT_NE(refusal("gpt2", "is_causal", Json(false)).find("is_causal is false"),
            std::string::npos);
  EXPECT_NE(refusal("deepseek_v3", "partial_rotary_factor", Json(0.5)).find("it must be 1"),
            std::string::npos);
}

TEST(ReadConfig, Phi3SuIsLongrope) {
  Json config = shipped("tiny/phi3");
  Json scaling = config.at("rope_parameters");
  config.erase("rope_parameters");
  scaling.erase("rope_type");
  scaling["type"] = "su";
  config["rope_scaling"] = scaling;
  const auto model = models::build_causal_lm(config, at::kFloat);
  const nn::RopeOptions& rope = decoder_config(*model).ropes.at(0);
  EXPECT_EQ(rope.type, nn::RopeType::kLongrope);
  EXPECT_EQ(rope.rotary_dim, 12);
  EXPECT_EQ(rope.original_max_positions, 128);
}

TEST(ReadConfig, Qwen2WindowsCountOnlyWhenAskedFor) {
  Json config = shipped("tiny/qwen2");
  config["sliding_window"] = 32;
  config["max_window_layers"] = 1;
  const auto without = models::build_causal_lm(config, at::kFloat);
  EXPECT_EQ(decoder_config(*without).layers.at(1).window, 0);
  config["use_sliding_window"] = true;
  const auto with = models::build_causal_lm(config, at::kFloat);
  EXPECT_EQ(decoder_config(*with).layers.at(0).window, 0);
  EXPECT_EQ(decoder_config(*with).layers.at(1).window, 32);
}

TEST(HfConfig, KeepsTheKeysAndSetsTheDtype) {
  Json config = shipped("llama3.2-1b");
  config["my_own_key"] = 3;
  const Json written = models::build_causal_lm(config, at::kBFloat16)->hf_config();
  EXPECT_EQ(written.at("dtype").as_string(), "bfloat16");
  EXPECT_FALSE(written.contains("torch_dtype"));
  EXPECT_EQ(written.at("my_own_key").as_int(), 3);
  EXPECT_EQ(written.at("rope_scaling"), config.at("rope_scaling"));
  EXPECT_EQ(written.at("architectures").dump(), R"(["LlamaForCausalLM"])");
}

TEST(ParallelPlan, NamesModulesThatExist) {
  for (const char* name : {"tiny/llama", "tiny/qwen3", "tiny/gemma2", "tiny/gpt2", "tiny/olmo2"}) {
    const auto model = models::build_causal_lm(shipped(name), at::kFloat);
    const auto modules = model->named_modules();
    const nn::ParallelPlan plan = model->parallel_plan();
    for (const std::string& block : plan.blocks) EXPECT_TRUE(modules.contains(block)) << block;
    EXPECT_TRUE(modules.contains(plan.embedding));
    EXPECT_TRUE(modules.contains(plan.final_norm));
    for (const nn::TpRule& rule : plan.tp_rules) {
      EXPECT_TRUE(modules.contains(replace_all(rule.pattern, "*", "0"))) << rule.pattern;
    }
  }
  EXPECT_THAT(
      models::build_causal_lm(shipped("tiny/olmo2"), at::kFloat)->parallel_plan().no_tp_reasons,
      ElementsAre("q_norm and k_norm normalise over all heads together"));
}

/// Upstream 0.7: DeepSeek's and GLM 5's classes have an update of their correction, GLM 4's has
/// none.
TEST(MoEOverrides, SetByHowMuchTheCorrectionMoves) {
  const auto factor = [](const char* name, const char* overrides) {
    Json config = Json::parse_file(test::source_file(cat("tests/golden/", name, "/config.json")));
    if (*overrides != '\0') config["moe_overrides"] = Json::parse(overrides, "overrides");
    const auto model = models::build_causal_lm(config, at::kFloat);
    EXPECT_FALSE(model->hf_config().contains("moe_overrides"));
    return decoder_config(*model).moe->gate_bias_update_factor;
  };
  EXPECT_EQ(factor("deepseek_v3", ""), 1e-3);
  EXPECT_EQ(factor("deepseek_v32", ""), 1e-3);
  EXPECT_EQ(factor("glm_moe_dsa", ""), 1e-3);
  EXPECT_EQ(factor("glm4_moe", ""), 0);
  EXPECT_EQ(factor("glm4_moe", R"({"gate_bias_update_factor": 0.01})"), 0.01);
  EXPECT_EQ(factor("deepseek_v3", R"({"gate_bias_update_factor": 0})"), 0);
}

TEST(MoEOverrides, NeedACorrection) {
  Json config = Json::parse_file(test::source_file("tests/golden/qwen3_moe/config.json"));
  config["moe_overrides"] = Json::parse(R"({"gate_bias_update_factor": 0.01})", "overrides");
  EXPECT_THAT(models::check_config(config),
              ElementsAre("moe_overrides: a Qwen3MoeForCausalLM has no correction to move"));
}

}  // namespace
}  // namespace automodel
