// Modules that are trained whole beside adapters: which a section names, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "models/catalog.h"
#include "peft/adapter_file.h"
#include "peft/adapter_folder.h"
#include "peft/adapter_keys.h"
#include "peft/apply_lora.h"
#include "peft/saved_modules.h"
#include "support/temporary_directory.h"

namespace automodel::peft {
namespace {

std::shared_ptr<models::CausalLM> golden(const std::string& name) {
  const std::string file = test::source_file(cat("tests/golden/", name, "/config.json"));
  return models::build_causal_lm(Json::parse_file(file), at::kFloat);
}

PeftConfig saving(std::vector<std::string> modules) {
  PeftConfig config;
  config.target_modules = {"*.o_proj"};
  config.modules_to_save = std::move(modules);
  return config;
}

std::string saved_of(const std::string& name, const PeftConfig& config) {
  return join(choose_modules(*golden(name), config).saved, " ");
}

std::string findings_of(const std::string& name, const PeftConfig& config) {
  std::vector<std::string> texts;
  for (const PeftFinding& finding : choose_modules(*golden(name), config).findings) {
    texts.push_back(finding.text);
  }
  return join(texts, "\n");
}

TEST(SavedModulesTest, AreNamedByTheEndsOfTheirNames) {
  EXPECT_EQ(saved_of("llama_default", saving({"embed_tokens", "lm_head"})),
            "model.embed_tokens lm_head");
  EXPECT_EQ(saved_of("llama_default", saving({"model.norm"})), "model.norm");
  EXPECT_EQ(saved_of("llama_default", saving({"1.input_layernorm", "l.norm"})),
            "model.layers.1.input_layernorm model.norm");
  EXPECT_EQ(saved_of("llama_default", saving({"0.mlp.gate_proj", "0.mlp"})), "model.layers.0.mlp");
  EXPECT_EQ(saved_of("llama_default", saving({"*.1.*norm"})),
            "model.layers.1.input_layernorm model.layers.1.post_attention_layernorm");
  EXPECT_EQ(saved_of("gpt2", saving({"wpe"})), "transformer.wpe");
  EXPECT_EQ(saved_of("qwen3_tied", saving({"lm_head"})), "model.embed_tokens");
}

TEST(SavedModulesTest, AreTrainedWithTheAdapters) {
  const auto model = golden("llama_default");
  apply_lora(*model, saving({"lm_head", "model.norm"}), at::kFloat);
  std::vector<std::string> trained;
  for (const auto& item : model->named_parameters()) {
    if (item.value().requires_grad() && item.key().find("lora") == std::string::npos) {
      trained.push_back(item.key());
    }
  }
  EXPECT_EQ(join(trained, " "), "model.norm.weight lm_head.weight");
  EXPECT_EQ(folder_keys(*model).size(), 4u + trained.size());
}

/// All linear layers get adapters but those that are trained whole.
TEST(SavedModulesTest, GetNoAdapterByMatchAllLinear) {
  PeftConfig config;
  config.match_all_linear = true;
  config.modules_to_save = {"lm_head"};
  const PeftChoice choice = choose_modules(*golden("llama_default"), config);
  EXPECT_TRUE(choice.findings.empty());
  EXPECT_EQ(choice.modules.size(), 14u);
  for (const AdaptedModule& module : choice.modules) EXPECT_NE(module.name, "lm_head");
}

TEST(SavedModulesTest, MistakesAreFound) {
  EXPECT_EQ(findings_of("llama_default", saving({"nothing"})),
            "no module of the model has a name that ends in 'nothing'; embed_tokens and lm_head "
            "are the usual ones");
  EXPECT_EQ(findings_of("llama_default", saving({"0.o_proj"})).substr(0, 31),
            "no module of the model has a na");
  EXPECT_EQ(findings_of("llama_default", saving({"0.self_attn"})),
            "model.layers.0.self_attn.o_proj is to be trained whole, and gets an adapter by "
            "*.o_proj: leave it out of one");
  EXPECT_EQ(findings_of("llama_default", saving({"0.self_attn.k_proj"})),
            "model.layers.0.self_attn.k_proj.weight and model.layers.0.self_attn.q_proj.weight are "
            "one matrix here: training one of them alone whole is not in this version");
  PeftConfig head = saving({"embed_tokens"});
  head.target_modules = {"lm_head"};
  EXPECT_EQ(findings_of("qwen3_tied", head),
            "the head is the embedding, which is to be trained whole: it gets no adapter beside "
            "that in this version");
  head.target_modules = {"*.c_attn"};
  head.modules_to_save = {"wte"};
  EXPECT_EQ(findings_of("gpt2", head),
            "PEFT ties no head to an embedding called transformer.wte: trained on there, the two "
            "go apart");
  PeftConfig experts = saving({"0.mlp"});
  experts.target_modules = {"*experts"};
  EXPECT_EQ(findings_of("qwen3_moe", experts),
            "model.layers.0.mlp.experts is to be trained whole, and gets an adapter by *experts: "
            "leave it out of one");
  EXPECT_EQ(findings_of("deepseek_v3", saving({"1.mlp.gate"})),
            "model.layers.1.mlp.gate.e_score_correction_bias is no parameter that is trained: "
            "training a module whole that has one is not in this version");
}

/// What PEFT trains without ensure_weight_tying: an embedding beside a head that stays.
TEST(SavedModulesTest, AnEmbeddingApartFromItsTiedHeadIsRefused) {
  const std::string source = test::source_file("tests/peft/data/qwen3_saved");
  const test::TemporaryDirectory folder;
  Json config = Json::parse_file(path_join(source, kAdapterConfigName));
  config["ensure_weight_tying"] = Json(false);
  write_file_atomic(folder.file(kAdapterConfigName), config.dump());
  write_file_atomic(folder.file(kAdapterWeightsName),
                    read_file(path_join(source, kAdapterWeightsName)));
  const auto model = golden("qwen3_tied");
  const PeftConfig section = config_of_adapter(folder.path(), *model);
  apply_lora(*model, section, at::kFloat);
  EXPECT_EQ(find_adapter_fault(folder.path(), section, *model),
            cat("the adapter in ", folder.path(),
                " does not fit: its head stays as the base has it while its embedding is another, "
                "and here they are one"));
  EXPECT_EQ(find_adapter_fault(source, section, *model), "");
}

/// A folder with an adapter of gpt2's first c_attn and its embedding, trained whole.
void write_gpt2_adapter(const test::TemporaryDirectory& folder) {
  folder.write(kAdapterConfigName,
               R"({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["c_attn"], )"
               R"("modules_to_save": ["wte"], "ensure_weight_tying": true})");
  const auto model = golden("gpt2");
  PeftConfig config = saving({"wte"});
  config.target_modules = {"transformer.h.0.attn.c_attn"};
  config.dim = 1;
  apply_lora(*model, config, at::kFloat);
  std::vector<checkpoint::TensorInfo> tensors;
  for (const tensor::ParameterPart& part : folder_keys(*model)) {
    tensors.push_back({cat(kPeftPrefix, part.name), at::kFloat, part.shape});
  }
  std::ranges::sort(tensors, {}, &checkpoint::TensorInfo::name);
  checkpoint::SafetensorsWriter writer(folder.file(kAdapterWeightsName), tensors, {});
  for (const checkpoint::TensorInfo& tensor : tensors) writer.write(at::ones(tensor.shape));
  writer.finish();
}

/// PEFT ties modules called embed_tokens and lm_head alone: the head of others stays, whatever
/// ensure_weight_tying says.
TEST(SavedModulesTest, AHeadIsTiedByItsEmbeddingsName) {
  const test::TemporaryDirectory folder;
  write_gpt2_adapter(folder);
  const auto model = golden("gpt2");
  EXPECT_FALSE(AdapterFile(folder.path(), model->hf_config()).ties_head());
  const PeftConfig section = config_of_adapter(folder.path(), *model);
  apply_lora(*model, section, at::kFloat);
  EXPECT_NE(find_adapter_fault(folder.path(), section, *model).find("its head stays"),
            std::string::npos);
  const std::string tied = test::source_file("tests/peft/data/qwen3_saved");
  EXPECT_TRUE(AdapterFile(tied, golden("qwen3_tied")->hf_config()).ties_head());
}

/// PEFT writes ensure_weight_tying for bases whose head is no embedding too.
TEST(SavedModulesTest, AHeadOfItsOwnStaysOne) {
  const std::string source = test::source_file("tests/peft/data/llama_saved");
  const test::TemporaryDirectory folder;
  Json config = Json::parse_file(path_join(source, kAdapterConfigName));
  config["ensure_weight_tying"] = Json(true);
  write_file_atomic(folder.file(kAdapterConfigName), config.dump());
  write_file_atomic(folder.file(kAdapterWeightsName),
                    read_file(path_join(source, kAdapterWeightsName)));
  const auto model = golden("llama_default");
  const AdapterFile file(folder.path(), model->hf_config());
  EXPECT_FALSE(file.ties_head());
  EXPECT_NE(file.find("lm_head.weight"), nullptr);
  const PeftConfig section = config_of_adapter(folder.path(), *model);
  apply_lora(*model, section, at::kFloat);
  EXPECT_EQ(find_adapter_fault(folder.path(), section, *model), "");
}

TEST(SavedModulesTest, WhatPeftDoesNotLoadIsKnown) {
  const auto texts = [](const std::string& name, const std::string& module) {
    return join(unloadable_saved_modules(*golden(name), {module}), "\n");
  };
  EXPECT_EQ(texts("llama_default", "model.embed_tokens"), "");
  EXPECT_EQ(texts("llama_default", "model.layers.0"), "");
  EXPECT_EQ(texts("llama_default", "model.layers"),
            "PEFT takes no list of modules, such as model.layers, in modules_to_save, and does not "
            "load the adapter's folder; merge-lora does");
  EXPECT_EQ(texts("qwen3_moe", "model.layers.0.mlp"),
            "PEFT does not load experts that are trained whole (model.layers.0.mlp.experts), which "
            "transformers stacks; merge-lora does");
}

}  // namespace
}  // namespace automodel::peft
