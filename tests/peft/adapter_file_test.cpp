// Adapters of PEFT whose files are mistaken, or of kinds that mean more than a product of factors.
#include "peft/adapter_file.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/hf_folder.h"
#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/file.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "peft/adapter_folder.h"
#include "peft/apply_lora.h"
#include "peft/merge_adapter.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::peft {
namespace {

using Tensors = std::vector<std::pair<std::string, at::Tensor>>;
using testing::HasSubstr;

std::string golden(const std::string& name) {
  return test::source_file(cat("tests/peft/data/", name));
}

/// A golden adapter, to be changed.
struct Adapter {
  explicit Adapter(const std::string& name)
      : config(Json::parse_file(path_join(golden(name), kAdapterConfigName))) {
    const checkpoint::SafetensorsFile file(path_join(golden(name), kAdapterWeightsName));
    for (const checkpoint::TensorEntry& entry : file.tensors()) {
      tensors.emplace_back(entry.name, file.read(entry.name));
    }
  }

  /// Writes it to a folder whose path is returned.
  std::string write(const test::TemporaryDirectory& folder) const {
    folder.write(kAdapterConfigName, config.dump());
    checkpoint::write_safetensors(folder.file(kAdapterWeightsName), tensors, {{"format", "pt"}});
    return folder.path();
  }

  void erase_all(std::string_view part) {
    std::erase_if(tensors,
                  [&](const auto& each) { return each.first.find(part) != each.first.npos; });
  }

  Json config;
  Tensors tensors;
};

/// The error of merging it into its base.
std::string merge_fault(const Adapter& adapter) {
  const test::TemporaryDirectory folder, out;
  const std::string path = adapter.write(folder);
  const std::string base =
      test::source_file(adapter.config.at("base_model_name_or_path").as_string());
  return test::error_of<UserError>([&] { merge_adapter(base, path, out.file("merged")); });
}

TEST(AdapterConfigTest, WhatChangesTheBaseOrTheProductIsRefused) {
  for (const char* init : {"pissa", "pissa_niter_16", "olora", "corda", "lora_ga", "loftq"}) {
    Adapter adapter("llama_qv");
    adapter.config["init_lora_weights"] = Json(init);
    EXPECT_THAT(merge_fault(adapter), HasSubstr(cat("init_lora_weights '", init, "'")));
  }
  const std::pair<const char*, Json> options[] = {
      {"alora_invocation_tokens", Json(Json::Array{Json(1)})},
      {"use_qalora", Json(true)},
      {"use_bdlora", Json(true)},
      {"arrow_config", Json(Json::Object{{"top_k", Json(2)}})},
      {"trainable_token_indices", Json(Json::Array{Json(1)})}};
  for (const auto& [key, value] : options) {
    Adapter adapter("llama_qv");
    adapter.config[key] = value;
    EXPECT_THAT(merge_fault(adapter), HasSubstr(cat(key, " is not in this version")));
  }
}

TEST(AdapterConfigTest, WeightsThatAreAPickleAreToldFromMissingOnes) {
  const test::TemporaryDirectory folder, out;
  Adapter("llama_qv").write(folder);
  const std::string weights = folder.file(kAdapterWeightsName);
  const auto fault = [&] {
    return test::error_of<UserError>([&] {
      merge_adapter(
          test::source_file(Adapter("llama_qv").config.at("base_model_name_or_path").as_string()),
          folder.path(), out.file("merged"));
    });
  };
  std::filesystem::remove(weights);
  EXPECT_THAT(fault(), HasSubstr(weights));
  folder.write("adapter_model.bin", "PK");
  EXPECT_THAT(fault(), HasSubstr("adapter_model.bin: a Python pickle, which is never loaded"));
  EXPECT_THAT(fault(), HasSubstr("save the adapter as safetensors"));
}

TEST(AdapterConfigTest, AFolderOfCheckpointsNamesTheAdapterBelowIt) {
  const test::TemporaryDirectory folder;
  const std::string none = cat(folder.path(), " is no adapter: it has no adapter_config.json");
  EXPECT_EQ(test::error_of<InputError>([&] { read_adapter_config(folder.path()); }), none);
  create_directories(folder.file("LATEST/model"));
  folder.write("LATEST/model/adapter_config.json", "{}");
  EXPECT_EQ(test::error_of<InputError>([&] { read_adapter_config(folder.path()); }),
            cat(none, "; ", folder.file("LATEST/model"), " is one"));
}

TEST(AdapterConfigTest, MistakesNameTheFile) {
  const std::pair<const char*, Json> mistakes[] = {{"r", Json("x")},
                                                   {"r", Json(0)},
                                                   {"lora_alpha", Json(std::nan(""))},
                                                   {"use_rslora", Json("x")},
                                                   {"rank_pattern", Json(Json::Array{Json(1)})}};
  for (const auto& [key, value] : mistakes) {
    Adapter adapter("llama_qv");
    adapter.config[key] = value;
    const test::TemporaryDirectory folder;
    const std::string path = adapter.write(folder);
    EXPECT_THAT(test::error_of<InputError>([&] { read_adapter_config(path); }),
                testing::StartsWith(cat(path, "/", kAdapterConfigName, ": ")))
        << key;
  }
}

/// The section and the model that "llama_qv" fits.
std::pair<PeftConfig, std::shared_ptr<models::CausalLM>> fitting_model(const Adapter& adapter) {
  const auto base = test::source_file(adapter.config.at("base_model_name_or_path").as_string());
  std::shared_ptr<models::CausalLM> model =
      models::build_causal_lm(Json::parse_file(base + "/config.json"), at::kFloat);
  PeftConfig config;
  config.target_modules = {"*q_proj", "*v_proj"};
  config.dim = adapter.config.at("r").as_int();
  config.alpha = adapter.config.at("lora_alpha").as_double();
  apply_lora(*model, config, at::kFloat);
  return {config, model};
}

TEST(AdapterFileTest, AnAdapterWithoutExpertsNeedsNoVersion) {
  Adapter adapter("llama_qv");
  adapter.config.erase("peft_version");
  const test::TemporaryDirectory folder;
  const std::string path = adapter.write(folder);
  const auto [config, model] = fitting_model(adapter);
  EXPECT_EQ(find_adapter_fault(path, config, *model), "");
}

TEST(AdapterFileTest, AdaptersOfOneProductOfExpertsAreRefused) {
  Adapter adapter("llama_qv");
  for (const char* name : {"gate_up_proj", "down_proj"}) {
    adapter.config["target_parameters"] =
        Json(Json::Array{Json(cat("mlp.experts.", name)), Json("mlp.gate.weight")});
    EXPECT_THAT(merge_fault(adapter),
                HasSubstr(cat("target_parameters names mlp.experts.", name,
                              " and not the other product of these experts; adapters of one of "
                              "the two are not in this version")));
  }
}

TEST(AdapterFileTest, TwoAdaptersOfALayerAreRefused) {
  Adapter adapter("llama_qv");
  const auto first = adapter.tensors[0];
  adapter.tensors.emplace_back(first.first.substr(kPeftPrefix.size()), first.second);
  EXPECT_THAT(merge_fault(adapter), HasSubstr("are adapters of the same layer"));
}

TEST(AdapterFileTest, NumbersThatAreNoneOfAnAdapterAreRefused) {
  for (const at::ScalarType dtype : {at::kLong, at::kByte, at::kFloat8_e4m3fn}) {
    Adapter adapter("llama_qv");
    adapter.tensors[0].second = adapter.tensors[0].second.to(dtype);
    EXPECT_THAT(merge_fault(adapter), HasSubstr("; an adapter is of float32, bfloat16")) << dtype;
  }
}

TEST(AdapterFileTest, AnotherAlphaOfALayerIsAnotherAdapter) {
  Adapter adapter("llama_qv");
  const test::TemporaryDirectory folder;
  adapter.config["alpha_pattern"] = Json::parse(R"({"v_proj": 3})", "pattern");
  const std::string path = adapter.write(folder);
  auto [config, model] = fitting_model(adapter);
  EXPECT_THAT(find_adapter_fault(path, config, *model), HasSubstr("(alpha_pattern)"));
  config.alpha_pattern = read_adapter_config(path).alpha_pattern;
  EXPECT_EQ(find_adapter_fault(path, config, *model), "");
}

/// transformers' DiffusionGemma has every layer twice, upstream's and ours once.
TEST(AdapterFileTest, TwinsAreOneAdapterUnlessTheyDiffer) {
  Adapter adapter("diffusion_gemma_experts");
  EXPECT_EQ(merge_fault(adapter), "no error");
  Adapter once = adapter;
  std::erase_if(once.tensors, [](const auto& tensor) {
    return tensor.first.find("language_model") != std::string::npos;
  });
  EXPECT_EQ(once.tensors.size(), 50u);
  EXPECT_EQ(merge_fault(once), "no error");
  for (auto& [name, value] : adapter.tensors) {
    if (name.find("encoder.language_model.layers.2.mlp.up_proj.lora_B") != std::string::npos) {
      value = value + 1;
    }
  }
  EXPECT_THAT(merge_fault(adapter), HasSubstr("are adapters of the same layer"));
}

TEST(MergeAdapterTest, ExpertsHaveRowsForEach) {
  for (const at::Tensor& wrong : {at::ones({}), at::ones({1, 8}), at::ones({0, 8})}) {
    Adapter adapter("qwen3_moe_experts");
    for (auto& [name, tensor] : adapter.tensors) {
      if (name.ends_with(".experts.lora_A.weight")) tensor = wrong;
    }
    EXPECT_THAT(merge_fault(adapter), HasSubstr("its rows are no multiple of the base's"));
  }
}

TEST(MergeAdapterTest, NumbersThatAreNotFiniteAreNotMerged) {
  for (const char* name : {"llama_qv", "qwen3_moe_experts"}) {
    Adapter adapter(name);
    at::Tensor& tensor = adapter.tensors[0].second;
    tensor.view({-1})[3] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THAT(merge_fault(adapter), HasSubstr("has numbers that are not finite")) << name;
  }
}

TEST(MergeAdapterTest, NoAdapterOfExpertsIsLeftOut) {
  Adapter inner("qwen3_moe_experts");
  inner.erase_all(".experts.lora_");
  EXPECT_THAT(merge_fault(inner), HasSubstr("there is no "));
  Adapter magnitude("qwen3_moe_experts");
  for (const auto& [name, tensor] : Tensors(magnitude.tensors)) {
    if (!name.ends_with(".experts.lora_A.weight")) continue;
    magnitude.tensors.emplace_back(name.substr(0, name.find(".lora_A")) + ".lora_magnitude_vector",
                                   at::ones({4}));
  }
  EXPECT_THAT(merge_fault(magnitude), HasSubstr("DoRA of experts"));
}

/// PEFT saves what an adapter of the head was trained on beside it.
TEST(MergeAdapterTest, ACopyOfTheHeadIsNoAdapterAndMustBeTheBases) {
  Adapter adapter("llama_head");
  const std::string base =
      test::source_file(adapter.config.at("base_model_name_or_path").as_string());
  const checkpoint::HfFolder folder = checkpoint::HfFolder::open(base);
  const auto place = *folder.find(*checkpoint::find_name_or_tied(folder, "lm_head.weight"));
  at::Tensor head = at::empty(place.entry->shape, at::TensorOptions().dtype(place.entry->dtype));
  folder.read_elements(place, 0, head);
  adapter.tensors.emplace_back("base_model.model.lm_head.base_layer.weight", head);
  EXPECT_EQ(merge_fault(adapter), "no error");
  head.view({-1})[7] += 1;
  EXPECT_THAT(merge_fault(adapter), HasSubstr("was trained on another weight"));
  adapter.tensors.back().first = "base_model.model.other.base_layer.weight";
  EXPECT_THAT(merge_fault(adapter), HasSubstr("is no tensor of a LoRA adapter"));
}

/// A base may hold the head that it ties as a tensor too.
TEST(MergeAdapterTest, AMergedHeadIsNotTiedAnyMore) {
  const Adapter adapter("llama_head");
  const checkpoint::HfFolder plain = checkpoint::HfFolder::open(
      test::source_file(adapter.config.at("base_model_name_or_path").as_string()));
  const test::TemporaryDirectory base, folder, out;
  Tensors tensors;
  for (const std::string& name : plain.names()) {
    const auto place =
        *plain.find(checkpoint::is_head_name(name) ? "model.embed_tokens.weight" : name);
    at::Tensor tensor =
        at::empty(place.entry->shape, at::TensorOptions().dtype(place.entry->dtype));
    plain.read_elements(place, 0, tensor);
    if (!checkpoint::is_head_name(name)) tensors.emplace_back(name, tensor);
    if (checkpoint::is_embedding_name(name)) tensors.emplace_back("lm_head.weight", tensor.clone());
  }
  checkpoint::write_safetensors(base.file("model.safetensors"), tensors, {{"format", "pt"}});
  Json config = plain.config();
  config["tie_word_embeddings"] = Json(true);
  base.write("config.json", config.dump());
  merge_adapter(base.path(), adapter.write(folder), out.file("merged"));
  const checkpoint::HfFolder merged = checkpoint::HfFolder::open(out.file("merged"));
  EXPECT_FALSE(merged.config().get("tie_word_embeddings", true));
  EXPECT_TRUE(merged.find("lm_head.weight"));

  folder.write("tokenizer.json", "{}");
  folder.write("chat_template.jinja", "mine");
  base.write("tokenizer.json", "{\"other\": 1}");
  merge_adapter(base.path(), folder.path(), out.file("with its tokenizer"));
  EXPECT_EQ(read_file(out.file("with its tokenizer/chat_template.jinja")), "mine");
  EXPECT_EQ(read_file(out.file("with its tokenizer/tokenizer.json")), "{}");

  std::erase_if(tensors,
                [](const auto& tensor) { return checkpoint::is_embedding_name(tensor.first); });
  checkpoint::write_safetensors(base.file("model.safetensors"), tensors, {{"format", "pt"}});
  EXPECT_THAT(test::error_of<UserError>(
                  [&] { merge_adapter(base.path(), folder.path(), out.file("again")); }),
              testing::HasSubstr("the base's embedding is its tied head, lm_head.weight, alone"));
}

}  // namespace
}  // namespace automodel::peft
