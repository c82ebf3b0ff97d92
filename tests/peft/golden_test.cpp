// Against Hugging Face PEFT: tests/peft/data, which scripts/goldens/make_lora_goldens.py makes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "checkpoint/hf_folder.h"
#include "checkpoint/safetensors.h"
#include "comm/groups/process_group.h"
#include "core/error.h"
#include "core/file.h"
#include "distributed/engine/data_parallel.h"
#include "kernels/base/fused.h"
#include "models/catalog.h"
#include "models/parity.h"
#include "peft/adapter_file.h"
#include "peft/adapter_folder.h"
#include "peft/adapter_keys.h"
#include "peft/apply_lora.h"
#include "peft/golden_support.h"
#include "peft/merge_adapter.h"
#include "support/temporary_directory.h"
#include "tensor/named_tensors.h"

namespace automodel::peft {
namespace {

std::string data_folder(const std::string& name) {
  return test::source_file(cat("tests/peft/data/", name));
}

std::string base_folder(const std::string& name) {
  return test::source_file(read_adapter_config(data_folder(name)).base);
}

tensor::NamedTensors reference_of(const std::string& name) {
  return read_reference(data_folder(name));
}

/// How a base with other towers is loaded.
checkpoint::LoadOptions options_of(const models::CausalLM& model) {
  return {.skipped_prefixes = model.kept_prefixes(), .stand_ins = model.stand_ins()};
}

/// Adapters of experts are named as transformers' modules, whatever a family's files call them.
TEST(ExpertNamesTest, AreThoseOfTransformersModules) {
  for (const auto& [family, name] : std::vector<std::pair<const char*, const char*>>{
           {"llama4", "model.layers.1.feed_forward.experts"},
           {"llama4_tower", "language_model.model.layers.1.feed_forward.experts"},
           {"lfm2_moe", "model.layers.2.feed_forward.experts"},
           {"granitemoe", "model.layers.1.block_sparse_moe.experts"},
           {"granitemoe_swa", "model.layers.1.block_sparse_moe.experts"},
           {"mixtral", "model.layers.1.mlp.experts"},
           {"minimax_m2", "model.layers.1.mlp.experts"},
           {"gpt_oss", "model.layers.1.mlp.experts"}}) {
    const auto model = models::build_causal_lm(
        Json::parse_file(test::source_file(cat("tests/golden/", family, "/config.json"))),
        at::kFloat);
    PeftConfig config;
    config.target_modules = {"*.experts"};
    std::vector<std::string> names;
    const PeftChoice choice = choose_modules(*model, config);
    for (const auto& module : choice.modules) names.push_back(module.name);
    EXPECT_TRUE(choice.findings.empty()) << family;
    EXPECT_NE(std::ranges::find(names, name), names.end()) << family << ": " << join(names, ", ");
  }
}

/// A model with the adapter of a golden, or with drawn ones.
struct AdaptedModel {
  explicit AdaptedModel(const std::string& name, bool loads = true) {
    const AdapterConfig there = read_adapter_config(data_folder(name));
    const Json json = Json::parse_file(path_join(data_folder(name), "adapter_config.json"));
    for (const Json& module : json.at("target_modules").as_array()) {
      if (module.as_string().find("language_model") != std::string::npos) continue;  // a twin
      config.target_modules.push_back(cat("*", module.as_string()));
    }
    if (const Json* experts = json.find("target_parameters"); experts && experts->is_array()) {
      config.target_modules.push_back(name == "diffusion_gemma_experts" ? "*.experts"
                                                                        : "*.mlp.experts");
    }
    const Json* ranks = json.find("rank_pattern");
    config.moe_rank_scaling =
        ranks != nullptr && ranks->size() > 0 && there.rank_pattern.is_empty();
    config.rank_pattern = there.rank_pattern;
    config.alpha_pattern = there.alpha_pattern;
    config.modules_to_save = there.modules_to_save;
    config.dim = there.rank;
    config.alpha = there.alpha;
    config.use_dora = there.use_dora;
    const auto folder = checkpoint::HfFolder::open(base_folder(name));
    model = models::build_causal_lm(folder.config(), at::kFloat);
    apply_lora(*model, config, at::kFloat);
    engine = std::make_unique<distributed::DataParallel>(
        *model, model->parallel_plan(), model->key_map(), comm::ProcessGroup::solo(),
        distributed::DataParallelOptions{});
    checkpoint::load_weights(folder, base_keys(*model), engine->parameters(), options_of(*model));
    if (loads) load_adapter(data_folder(name), config, *model, engine->parameters());
    model->eval();
  }

  PeftConfig config;
  std::shared_ptr<models::CausalLM> model;
  std::unique_ptr<distributed::DataParallel> engine;
};

class LoraGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(LoraGoldenTest, LogitsLossAndGradientsAreThoseOfPeft) {
  for (const bool is_plain : {false, true}) {
    const kernels::PlainPathScope path(is_plain);
    AdaptedModel adapted(GetParam());
    expect_parity(*adapted.model, reference_of(GetParam()));
  }
}

TEST_P(LoraGoldenTest, ThreeStepsOfAdamWHaveTheLossesOfPeft) {
  AdaptedModel adapted(GetParam());
  expect_losses(*adapted.model, *adapted.engine, reference_of(GetParam()));
}

/// Of the folder alone, without a recipe.
TEST_P(LoraGoldenTest, AFoldersOwnSectionMakesItsAdapters) {
  const std::string adapter = data_folder(GetParam());
  const auto folder = checkpoint::HfFolder::open(base_folder(GetParam()));
  const auto model = models::build_causal_lm(folder.config(), at::kFloat);
  const PeftConfig config = config_of_adapter(adapter, *model);
  apply_lora(*model, config, at::kFloat);
  const distributed::DataParallel engine(*model, model->parallel_plan(), model->key_map(),
                                         comm::ProcessGroup::solo(),
                                         distributed::DataParallelOptions{});
  checkpoint::load_weights(folder, base_keys(*model), engine.parameters(), options_of(*model));
  load_adapter(adapter, config, *model, engine.parameters());
  model->eval();
  tensor::NamedTensors reference = reference_of(GetParam());
  std::erase_if(reference, [](const auto& tensor) { return tensor.first.starts_with("grad."); });
  const auto report = models::run_parity(*model, reference);
  EXPECT_LE(report.logits->worst_absolute, 2e-5) << report.logits->absolute_culprit;
}

TEST_P(LoraGoldenTest, FrozenParametersCostNoGradientAndNoState) {
  AdaptedModel adapted(GetParam());
  int64_t trained = 0;
  std::set<std::string> saved;  // parameters
  for (const tensor::ParameterPart& part : folder_keys(*adapted.model))
    saved.insert(part.parameter);
  for (const auto& item : adapted.model->named_parameters()) {
    const bool is_adapter =
        item.key().find(".lora_") != std::string::npos || saved.contains(item.key());
    EXPECT_EQ(item.value().requires_grad(), is_adapter) << item.key();
    EXPECT_EQ(item.value().grad().defined(), is_adapter) << item.key();
    trained += is_adapter ? item.value().numel() : 0;
  }
  EXPECT_EQ(adapted.engine->num_trained_parameters(), trained);
}

TEST_P(LoraGoldenTest, MergedWeightsAreThoseOfPeft) {
  const test::TemporaryDirectory folder;
  merge_adapter(base_folder(GetParam()), data_folder(GetParam()), folder.file("merged"));
  const auto merged = checkpoint::HfFolder::open(folder.file("merged"));
  int64_t count = 0;
  for (const auto& [name, value] : reference_of(GetParam())) {
    if (!name.starts_with("merged.")) continue;
    const auto place = merged.find(name.substr(7));
    ASSERT_TRUE(place) << name;
    const at::Tensor ours = merged.file(place->file).read(name.substr(7));
    EXPECT_LE((ours - value).abs().max().item<double>(), 1e-6) << name;
    ++count;
  }
  EXPECT_GT(count, 0);
}

TEST_P(LoraGoldenTest, TheMergedModelHasTheLogitsOfPeft) {
  const test::TemporaryDirectory folder;
  merge_adapter(base_folder(GetParam()), data_folder(GetParam()), folder.file("merged"));
  const auto merged = checkpoint::HfFolder::open(folder.file("merged"));
  const auto model = models::build_causal_lm(merged.config(), at::kFloat);
  const distributed::DataParallel engine(*model, model->parallel_plan(), model->key_map(),
                                         comm::ProcessGroup::solo(),
                                         distributed::DataParallelOptions{});
  checkpoint::load_weights(merged, model->key_map(), engine.parameters(), options_of(*model));
  model->eval();
  tensor::NamedTensors reference = reference_of(GetParam());
  std::erase_if(reference, [](const auto& tensor) { return tensor.first.starts_with("grad."); });
  const auto report = models::run_parity(*model, reference);
  EXPECT_LE(report.logits->worst_absolute, 2e-5) << report.logits->absolute_culprit;
}

TEST_P(LoraGoldenTest, ASavedAdapterIsTheOneThatWasLoaded) {
  AdaptedModel adapted(GetParam());
  const test::TemporaryDirectory folder;
  save_adapter(
      folder.path(), checkpoint::ShardSource(adapted.engine->parameters()),
      {adapted.config, "base", adapted.model->architecture(), "", adapted.model->hf_config(),
       adapted.model->saved_modules(), tied_saved_embedding(*adapted.model)});
  const checkpoint::SafetensorsFile theirs(
      path_join(data_folder(GetParam()), "adapter_model.safetensors"));
  const checkpoint::SafetensorsFile ours(folder.file("adapter_model.safetensors"));
  ASSERT_EQ(ours.tensors().size(), theirs.tensors().size());
  for (const auto& entry : theirs.tensors()) {
    EXPECT_TRUE(at::equal(ours.read(entry.name), theirs.read(entry.name))) << entry.name;
  }
  const AdapterConfig config = read_adapter_config(folder.path());
  EXPECT_EQ(config.rank, adapted.config.dim);
  EXPECT_EQ(config.alpha, adapted.config.alpha);
  EXPECT_EQ(config.use_dora, adapted.config.use_dora);
  EXPECT_EQ(config.base, "base");
  EXPECT_EQ(config.rank_pattern.entries(), adapted.config.rank_pattern.entries());
  EXPECT_EQ(config.alpha_pattern.entries(), adapted.config.alpha_pattern.entries());
  EXPECT_EQ(config.modules_to_save, adapted.model->saved_modules());
  const bool is_tied = !tied_saved_embedding(*adapted.model).empty();
  EXPECT_EQ(config.ensure_weight_tying, is_tied);
}

/// PEFT 0.21 finds dense and shared MLPs of these families by their weights alone.
TEST(AdapterFolderTest, LayersThatPeftTakesForExpertsAreNamedByTheirWeights) {
  const Json hf_config =
      Json::parse_file(test::source_file("tests/golden/deepseek_v3/config.json"));
  const auto config_of = [&](const PeftConfig& config, const std::string& folder) {
    const auto model = models::build_causal_lm(hf_config, at::kFloat);
    apply_lora(*model, config, at::kFloat);
    const distributed::DataParallel engine(*model, model->parallel_plan(), model->key_map(),
                                           comm::ProcessGroup::solo(),
                                           distributed::DataParallelOptions{});
    save_adapter(folder, checkpoint::ShardSource(engine.parameters()),
                 {config, "base", model->architecture(), "", model->hf_config()});
    EXPECT_EQ(find_adapter_fault(folder, config, *model), "");
    return Json::parse_file(path_join(folder, kAdapterConfigName));
  };
  const test::TemporaryDirectory folder;
  PeftConfig config;
  config.target_modules = {"*_proj"};
  config.dropout = 0.25;
  create_directories(folder.file("lora"));
  create_directories(folder.file("dora"));
  const Json lora = config_of(config, folder.file("lora"));
  EXPECT_EQ(lora.at("target_modules").dump().find("mlp"), std::string::npos);
  const std::string parameters = lora.at("target_parameters").dump();
  for (const char* name :
       {"model.layers.0.mlp.gate_proj.weight", "model.layers.1.mlp.shared_experts.up_proj.weight",
        "model.layers.1.mlp.shared_experts.down_proj.weight"}) {
    EXPECT_NE(parameters.find(cat('"', name, '"')), std::string::npos) << name;
  }
  EXPECT_EQ(parameters.find("self_attn"), std::string::npos);
  EXPECT_EQ(lora.at("lora_dropout").as_double(), 0);
  config.dropout = 0;
  config.use_dora = true;
  const Json dora = config_of(config, folder.file("dora"));
  EXPECT_NE(dora.at("target_modules").dump().find("model.layers.0.mlp.gate_proj"),
            std::string::npos);
  EXPECT_EQ(dora.find("target_parameters"), nullptr);
}

/// The adapter of a golden as rsLoRA with an alpha that leaves the experts' scale what it is.
std::string as_rslora(const std::string& name, const test::TemporaryDirectory& folder) {
  const AdapterConfig there = read_adapter_config(data_folder(name));
  Json json = Json::parse_file(path_join(data_folder(name), kAdapterConfigName));
  const int64_t rank = json.at("rank_pattern").as_object().begin()->second.as_int();
  json["use_rslora"] = Json(true);
  json["lora_alpha"] = there.scale(rank, there.alpha) * std::sqrt(static_cast<double>(rank));
  write_file_atomic(folder.file(kAdapterConfigName), json.dump());
  write_file_atomic(folder.file(kAdapterWeightsName),
                    read_file(path_join(data_folder(name), kAdapterWeightsName)));
  return folder.path();
}

TEST(RsLoraTest, TheScaleOfExpertsGoesByTheirOwnRank) {
  const std::string name = "mixtral_experts";
  const test::TemporaryDirectory folder, out;
  const std::string adapter = as_rslora(name, folder);
  merge_adapter(base_folder(name), data_folder(name), out.file("lora"));
  merge_adapter(base_folder(name), adapter, out.file("rslora"));
  const auto wanted = checkpoint::HfFolder::open(out.file("lora"));
  const auto merged = checkpoint::HfFolder::open(out.file("rslora"));
  int64_t count = 0;
  for (const std::string& key : wanted.names()) {
    if (key.find("experts") == std::string::npos) continue;
    const at::Tensor theirs = wanted.file(wanted.find(key)->file).read(key);
    const at::Tensor ours = merged.file(merged.find(key)->file).read(key);
    EXPECT_LE((ours - theirs).abs().max().item<double>(), 1e-6) << key;
    ++count;
  }
  EXPECT_GT(count, 0);

  // One alpha cannot give both the layers and the experts their scale by alpha / rank.
  AdaptedModel adapted(name);
  const AdapterConfig there = read_adapter_config(adapter);
  adapted.config.alpha = there.scale() * static_cast<double>(there.rank);
  const std::string fault = find_adapter_fault(adapter, adapted.config, *adapted.model);
  EXPECT_NE(fault.find("its experts are scaled by"), std::string::npos) << fault;
}

/// Of layers with ranks and alphas of their own PEFT takes each by the root of its own rank.
TEST(RsLoraTest, PatternsAreMergedAsByPeft) {
  const std::string name = "llama_patterns_rslora";
  const test::TemporaryDirectory folder;
  merge_adapter(base_folder(name), data_folder(name), folder.file("merged"));
  const auto merged = checkpoint::HfFolder::open(folder.file("merged"));
  int64_t count = 0;
  for (const auto& [key, value] : reference_of(name)) {
    if (!key.starts_with("merged.")) continue;
    const std::string tensor = key.substr(7);
    const at::Tensor ours = merged.file(merged.find(tensor)->file).read(tensor);
    EXPECT_LE((ours - value).abs().max().item<double>(), 1e-6) << key;
    ++count;
  }
  EXPECT_GT(count, 0);

  const AdaptedModel adapted(name, /*loads=*/false);
  EXPECT_EQ(find_adapter_fault(data_folder(name), adapted.config, *adapted.model),
            cat("the adapter in ", data_folder(name),
                " does not fit: it is scaled by the root of each layer's own rank (use_rslora with "
                "rank_pattern or alpha_pattern), which automodel merge-lora alone reads"));
}

/// Its product is not with the weight as it lies, and upstream's is no linear layer.
TEST(NormedHeadTest, HasNoAdapter) {
  const Json config = Json::parse_file(test::source_file("tests/golden/baichuan/config.json"));
  const auto model = models::build_causal_lm(config, at::kFloat);
  PeftConfig all;
  all.match_all_linear = true;
  const auto modules = choose_modules(*model, all).modules;
  EXPECT_EQ(modules.size(), 10);  // five layers a block
  for (const AdaptedModule& module : modules) EXPECT_NE(module.name, "lm_head");
}

/// A choice of keys has no gradient, so adapters of what makes it would never learn.
TEST(IndexerTest, HasNoAdapters) {
  const Json config = Json::parse_file(test::source_file("tests/golden/glm_moe_dsa/config.json"));
  const auto model = models::build_causal_lm(config, at::kFloat);
  PeftConfig all;
  all.target_modules = {"*"};
  bool has_neighbour = false;
  for (const AdaptedModule& module : choose_modules(*model, all).modules) {
    EXPECT_EQ(module.name.find("indexer"), std::string::npos) << module.name;
    has_neighbour = has_neighbour || module.name == "model.layers.0.self_attn.q_a_proj";
  }
  EXPECT_TRUE(has_neighbour);
}

INSTANTIATE_TEST_SUITE_P(Adapters, LoraGoldenTest,
                         testing::Values("llama_all", "llama_qv", "llama_head", "llama_dora",
                                         "llama_biases", "qwen3_all", "qwen3_qv", "qwen3_head",
                                         "qwen3_dora", "phi3_all", "qwen3_moe_experts",
                                         "deepseek_v3_experts", "mixtral_experts",
                                         "gpt_oss_experts", "mistral4_experts",
                                         "glm_moe_dsa_experts", "kimi_linear_experts",
                                         "deepseek_v4_experts", "llama_patterns",
                                         "qwen3_patterns_dora", "llama_saved", "qwen3_saved",
                                         "gpt2_all", "gpt2_dora", "diffusion_gemma_experts"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace automodel::peft
