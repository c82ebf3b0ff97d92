// The classes that a recipe may name.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>

#include "config/load.h"
#include "core/file.h"
#include "models/catalog.h"
#include "models/facts.h"
#include "recipes/build/tp_request.h"
#include "recipes/read/dataset_recipe.h"
#include "recipes/read/read_model.h"
#include "recipes/read/recipe_schema.h"
#include "recipes/read/section_targets.h"
#include "recipes/read/targets_distributed.h"
#include "recipes/read/targets_optimizer.h"
#include "recipes/read/targets_simple.h"
#include "recipes/section_recipe.h"
#include "support/errors.h"
#include "support/program.h"

namespace automodel::recipes {
namespace {

using Texts = std::vector<std::string>;

TEST(RecipeClasses, ImportClassFromPathResolvesEveryNameOfEveryRegistry) {
  EXPECT_EQ(import_class_from_path("torch.optim.AdamW").kind, "optimizer");
  const distributed::ClassTable table = recipe_classes();
  int64_t names = 0;
  const auto resolves = [&](const config::TargetNames& registry) {
    for (const config::TargetInfo& info : registry.infos()) {
      Texts all = info.aliases;
      all.push_back(info.name);
      for (const std::string& name : all) {
        const auto import = [&] {
          EXPECT_EQ(distributed::import_class_from_path(name, table).path, info.name) << name;
        };
        const bool is_known = info.unsupported_reason.empty();
        const std::string error = test::error_of<UnsupportedError>(import);
        EXPECT_EQ(error, is_known
                             ? "no error"
                             : cat(name, " is not in this version: ", info.unsupported_reason));
        ++names;
      }
    }
  };
  resolves(optimizer_targets());
  resolves(loss_targets());
  resolves(dataset_targets());
  resolves(model_targets());
  resolves(model_config_targets());
  resolves(collate_targets());
  resolves(dataloader_targets());
  resolves(tokenizer_targets());
  resolves(recipe_targets());
  resolves(distributed_targets());
  resolves(mp_policy_targets());
  resolves(offload_policy_targets());
  resolves(pipeline_targets());
  resolves(moe_targets());
  resolves(lr_scheduler_targets());
  resolves(peft_targets());
  resolves(kd_loss_targets());
  for (const std::string& section : sections_of_a_class()) resolves(section_targets(section));
  EXPECT_GT(names, 120);
  test::Warnings warnings;
  const auto classes = distributed::import_classes_from_paths(
      {"torch.optim.SGD", "torch.optim.SDG", "nemo_automodel.components.loss.MaskedCrossEntropy"},
      warnings, table);
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_EQ(classes[1].kind, "loss");
  EXPECT_EQ(warnings.texts,
            (Texts{"Could not import class from path torch.optim.SDG: no class torch.optim.SDG; "
                   "did you mean 'torch.optim.SGD'?"}));
}

/// A registry that somebody adds is among those above and in recipe_classes.
TEST(RecipeClasses, ComeFromEveryRegistryThatReadsARecipe) {
  const std::regex declaration(R"(Target(?:Names|Registry<[\w:]+>) (\w+_targets)\(\);)");
  const std::string folder = test::source_file("src/recipes/read");
  const std::string table = read_file(path_join(folder, "targets_distributed.cpp"));
  int64_t registries = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".h") continue;
    const std::string text = read_file(file.path());
    for (std::sregex_iterator at(text.begin(), text.end(), declaration), end; at != end; ++at) {
      const std::string call = cat("  add(", (*at)[1].str(), "(), table);\n");
      EXPECT_NE(table.find(call), std::string::npos) << call << file.path();
      ++registries;
    }
  }
  EXPECT_EQ(registries, 17);
}

TEST(RecipeClasses, SchemaAndExplainKnowTheClassesOfSections) {
  const Json schema = recipe_schema();
  const auto names_at = [&](const std::string& path) {
    const Json* at = &schema;
    for (const std::string& part : split(path, '.')) at = &at->at("properties").at(part);
    Texts names;
    const Json& known = at->at("properties").at("_target_").at("anyOf").as_array().at(0);
    for (const Json& name : known.at("enum").as_array()) {
      names.push_back(name.as_string());
    }
    return names;
  };
  const auto has = [&](const std::string& path, const std::string& name) {
    const Texts names = names_at(path);
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const std::string module = "nemo_automodel.components.";
  EXPECT_TRUE(has("distributed", module + "distributed.nvfsdp.NVFSDPManager"));
  EXPECT_TRUE(has("distributed.mp_policy", "torch.distributed.fsdp.MixedPrecisionPolicy"));
  EXPECT_TRUE(has("distributed.offload_policy", "torch.distributed.fsdp.OffloadPolicy"));
  EXPECT_TRUE(has("distributed.moe", module + "moe.config.MoEParallelizerConfig"));
  EXPECT_TRUE(has("distributed.moe.mp_policy", "torch.distributed.fsdp.MixedPrecisionPolicy"));
  EXPECT_TRUE(has("distributed.pipeline", module + "distributed.pipelining.config.PipelineConfig"));
  EXPECT_TRUE(has("lr_scheduler", module + "optim.scheduler.OptimizerParamScheduler"));
  EXPECT_NE(explain("distributed._target_").find("which distributed configuration"),
            std::string::npos);
}

TEST(RecipeClasses, HaveTheLayersOfEveryModel) {
  const distributed::ClassTable table = recipe_classes();
  for (const std::string& architecture : models::known_architectures()) {
    const std::string layer = table.of_model(architecture).layer;
    EXPECT_TRUE(table.path_of(layer, "layer").has_value()) << architecture;
  }
}

TEST(RecipeClasses, HaveTheExpertsOfEveryModelWithExperts) {
  const distributed::ClassTable table = recipe_classes();
  for (const char* golden :
       {"qwen3_moe",      "mixtral",          "deepseek_v3",     "glm4_moe",    "gpt_oss",
        "minimax_m2",     "glm4_moe_lite",    "diffusion_gemma", "qwen3_next",  "qwen3_5_moe",
        "nemotron_h_moe", "bailing_moe_v2",   "hy_v3",           "qwen2_moe",   "ernie4_5_moe",
        "mistral4",       "mistral4_tower",   "deepseek_v32",    "glm_moe_dsa", "kimi_linear",
        "hunyuan_v1_moe", "deepseek_v4",      "olmoe",           "deepseek_v2", "dots1",
        "granitemoe",     "granitemoeshared", "step3p5",         "laguna",      "mimo_v2_flash",
        "solar_open",     "exaone_moe",       "flex_olmo",       "deepseek",    "granitemoehybrid",
        "lfm2_moe",       "granitemoe_swa",   "mellum",          "afmoe",       "llama4",
        "llama4_tower",   "cohere2_moe"}) {
    const std::string experts = table.of_model(golden_model(golden)->architecture()).experts;
    EXPECT_TRUE(table.path_of(experts, "experts").has_value()) << golden;
  }
  EXPECT_EQ(table.of_model("LlamaForCausalLM").experts, "");
}

TEST(RecipeClasses, AConfigurationsClassChoosesItsArchitecture) {
  for (const models::FamilyFacts& family : models::family_facts()) {
    const Json config = Json::Object{{"architectures", Json::Array{family.architecture}}};
    const char* kind = family.architecture == family.classifier ? "SequenceClassification"
                       : models::reads_sources(config)          ? "Seq2SeqLM"
                                                                : "CausalLM";
    const config::Document document =
        config::load_text(cat("_target_: nemo_automodel.NeMoAutoModelFor", kind, ".from_config\n",
                              "config: {_target_: transformers.models.", family.module, ".",
                              family.config_class, ", vocab_size: 8}\n"),
                          "r.yaml");
    config::Diagnostics diagnostics(document.sources);
    const ModelRecipe plan = read_model(document.root, diagnostics);
    diagnostics.throw_if_errors();
    EXPECT_EQ(plan.hf_config.at("architectures").dump(), cat("[\"", family.architecture, "\"]"));
  }
}

TEST(RecipeClasses, ModelsThatStateNoTensorParallelPlanHaveNone) {
  EXPECT_FALSE(distributed::get_hf_tp_shard_plan(tp_model(*golden_model("llama_default"))).empty());
  for (const auto& [golden, architecture] :
       {std::pair{"gpt2", "GPT2LMHeadModel"}, {"olmo2", "Olmo2ForCausalLM"}}) {
    EXPECT_EQ(test::error_of<UserError>(
                  [&] { distributed::get_hf_tp_shard_plan(tp_model(*golden_model(golden))); }),
              cat("Hugging Face tp plan is not supported for ", architecture, ": it states none"));
  }
}

}  // namespace
}  // namespace automodel::recipes
