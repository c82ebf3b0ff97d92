// Runs that leave some parameters as they are.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "checkpoint/hf_folder.h"
#include "checkpoint/safetensors.h"
#include "recipes/build/freeze_parameters.h"
#include "recipes/runs.h"
#include "recipes/section_recipe.h"
#include "support/errors.h"

namespace automodel::recipes {
namespace {

using test::read_records;
using test::TemporaryDirectory;
using Texts = std::vector<std::string>;

std::set<std::string> frozen_names(const models::CausalLM& model) {
  std::set<std::string> names;
  const auto parameters = model.named_parameters();
  for (const tensor::ParameterPart& part : model.key_map()) {
    if (!parameters[part.parameter].requires_grad()) names.insert(part.name);
  }
  return names;
}

std::set<std::string> names_like(const models::CausalLM& model, const std::string& piece) {
  std::set<std::string> names;
  for (const tensor::ParameterPart& part : model.key_map()) {
    if (part.name.find(piece) != std::string::npos) names.insert(part.name);
  }
  return names;
}

Texts texts_of(const std::string& golden, const FreezeSection& section) {
  Texts texts;
  for (const FreezeFinding& finding : freeze_parameters(*golden_model(golden), section)) {
    texts.push_back(cat(finding.key, ": ", finding.text));
  }
  return texts;
}

TEST(FreezeParametersTest, ExpressionsAreSearchedInNames) {
  const auto model = golden_model("llama_default");
  freeze_or_throw(*model, {.frozen_parameters = {R"(layers\.1\.mlp)"}});
  EXPECT_EQ(frozen_names(*model), names_like(*model, "layers.1.mlp"));
  EXPECT_EQ(frozen_names(*model).size(), 3u);
}

TEST(FreezeParametersTest, WhatIsTrainableLeavesTheOthersFrozen) {
  const auto model = golden_model("llama_default");
  freeze_or_throw(*model, {.frozen_parameters = {"norm"}, .trainable_parameters = {"layers.1"}});
  std::set<std::string> trained = names_like(*model, "layers.1.");
  std::erase_if(trained, [](const auto& name) { return name.find("norm") != name.npos; });
  std::set<std::string> frozen = names_like(*model, "");
  for (const std::string& name : trained) frozen.erase(name);
  EXPECT_EQ(frozen_names(*model), frozen);
  EXPECT_FALSE(trained.empty());
}

TEST(FreezeParametersTest, EmbeddingsAreThoseOfTokensAndPositions) {
  const auto gpt2 = golden_model("gpt2");
  freeze_or_throw(*gpt2, {.freeze_embeddings = true});
  EXPECT_EQ(frozen_names(*gpt2),
            (std::set<std::string>{"transformer.wpe.weight", "transformer.wte.weight"}));
  const auto tied = golden_model("qwen3_tied");
  freeze_or_throw(*tied, {.freeze_embeddings = true});
  EXPECT_EQ(frozen_names(*tied), std::set<std::string>{"model.embed_tokens.weight"});
}

TEST(FreezeParametersTest, MistakesAreFound) {
  EXPECT_EQ(texts_of("llama_default", {.frozen_parameters = {"q_projx", "("}}),
            (Texts{"frozen_parameters: '(' is not a regular expression that can be used: missing "
                   "closing parenthesis",
                   "frozen_parameters: 'q_projx' is in no parameter's name"}));
  EXPECT_EQ(texts_of("llama_default", {.frozen_parameters = {"layers.0.*q_proj"}}),
            (Texts{"frozen_parameters: model.layers.0.self_attn.q_proj.weight and "
                   "model.layers.0.self_attn.k_proj.weight are one matrix here: freezing one of "
                   "them alone is not in this version"}));
  EXPECT_EQ(texts_of("llama_default", {.frozen_parameters = {"."}}),
            Texts{"frozen_parameters: no parameter is left to train"});
  EXPECT_EQ(texts_of("deepseek_v3", {.trainable_parameters = {"e_score_correction_bias"}}),
            Texts{"trainable_parameters: no parameter is left to train"});
  EXPECT_EQ(texts_of("llama_default", {.freeze_language_model = true}).size(), 1u);
  EXPECT_EQ(test::error_of<UnsupportedError>([] {
              freeze_or_throw(*golden_model("llama_default"), {.trainable_parameters = {"up_"}});
            }).substr(0, 64),
            "freeze_config.trainable_parameters: model.layers.0.mlp.gate_proj");
}

std::vector<Json> run(const std::string& folder, const test::Spread& spread, const Texts& more) {
  Texts arguments = test::smoke_run(
      folder, {"--optimizer.lr=1e-2", "--clip_grad_norm.max_norm=.inf",
               "--dataset.path_or_dataset_id=recipes/data/gsm8k_train.jsonl",
               "--step_scheduler.global_batch_size=16", "--step_scheduler.local_batch_size=2"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  const test::ProgramResult result = test::run_program(test::on(spread, std::move(arguments)));
  EXPECT_EQ(result.status, 0) << result.err;
  return read_records(path_join(folder, "training.jsonl"));
}

const Texts kFrozen = {"--freeze_config.freeze_embeddings=true",
                       R"(--freeze_config.frozen_parameters=['layers\.0\.', 'norm'])"};

/// The records' losses.
std::vector<double> losses(const std::vector<Json>& records) {
  std::vector<double> found;
  for (const Json& record : records) found.push_back(record.at("loss").as_double());
  return found;
}

/// A rate of zero keeps a parameter as it is too, with a gradient that nobody uses.
TEST(FreezeRunTest, LossesAreThoseOfARateOfZero) {
  const TemporaryDirectory folder;
  const std::vector<Json> frozen = run(folder.file("frozen"), {1, {}}, kFrozen);
  const std::vector<Json> slow =
      run(folder.file("slow"), {1, {}},
          {R"(--optimizer.param_group_overrides=[{'pattern': 'embed|layers\\.0\\.|norm', )"
           "'lr_mult': 0, 'wd_mult': 0}]"});
  const std::vector<Json> all = run(folder.file("all"), {1, {}}, {});
  ASSERT_EQ(frozen.size(), 6u);
  EXPECT_EQ(losses(frozen), losses(slow));
  EXPECT_NE(losses(frozen), losses(all));
  EXPECT_LT(frozen[0].at("grad_norm").as_double(), slow[0].at("grad_norm").as_double());
}

TEST(FreezeRunTest, AnySpreadHasTheSameLosses) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = run(folder.file("one"), {1, {}}, kFrozen);
  const std::vector<std::pair<const char*, test::Spread>> spreads = {
      {"ddp", {2, {"--distributed.strategy=ddp"}}},
      {"megatron_fsdp", {2, {"--distributed.strategy=megatron_fsdp"}}},
      {"fsdp2", test::sharded(2)},
      {"tensor parallel", test::sharded(2, {"--distributed.tp_size=2"})},
      {"context parallel", test::sharded(2, {"--distributed.cp_size=2"})},
      {"activation checkpointing", {1, {"--distributed.activation_checkpointing=true"}}},
  };
  for (const auto& [name, spread] : spreads) {
    const testing::Message trace = testing::Message() << name;
    SCOPED_TRACE(trace);
    test::expect_equal_records(one, run(folder.file(name), spread, kFrozen), 2e-5);
  }
}

/// The tensors of a folder whose names have a piece.
std::map<std::string, at::Tensor> values_of(const std::string& path,
                                            const std::string& piece = "") {
  const auto opened = checkpoint::HfFolder::open(path);
  std::map<std::string, at::Tensor> found;
  for (const std::string& name : opened.names()) {
    if (name.find(piece) == std::string::npos) continue;
    found[name] = opened.file(opened.find(name)->file).read(name);
  }
  return found;
}

TEST(FreezeRunTest, FrozenTensorsAreSavedAsTheyCame) {
  const TemporaryDirectory folder;
  const std::string golden = test::source_file("tests/golden/llama_default");
  const auto continued = [&](int num_steps, const std::string& name) {
    const test::ProgramResult result = test::mock_on_golden(
        "run", "llama_default",
        {"--checkpoint.enabled=true", cat("--checkpoint.checkpoint_dir=", folder.file(name)),
         cat("--step_scheduler.max_steps=", num_steps),
         "--freeze_config.trainable_parameters=['layers.1.', 'lm_head']"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out + result.err,
                testing::HasSubstr("frozen tensors (11): model.embed_tokens.weight, "));
    const std::string newest = std::filesystem::canonical(path_join(folder.file(name), "LATEST"));
    return path_join(newest, "model/consolidated");
  };
  const auto before = values_of(golden);
  const auto after = values_of(continued(4, "whole"));
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, tensor] : after) {
    const bool is_trained =
        name.find("layers.1.") != std::string::npos || name.find("lm_head") != std::string::npos;
    EXPECT_EQ(at::equal(tensor, before.at(name)), !is_trained) << name;
  }
  continued(2, "stopped");
  const auto resumed = values_of(continued(4, "stopped"));
  for (const auto& [name, tensor] : after) {
    EXPECT_TRUE(at::equal(tensor, resumed.at(name))) << name;
  }
}

TEST(FreezeRunTest, ATiedEmbeddingMayBeCutByAPipelineOnceItIsFrozen) {
  const TemporaryDirectory folder;
  const Texts cut = {"--distributed.pp_size=2",
                     "--distributed.pipeline.pp_schedule=1f1b",
                     "--distributed.pipeline.pp_microbatch_size=1",
                     "--distributed.mp_policy.param_dtype=float32",
                     "--distributed.mp_policy.reduce_dtype=float32",
                     "--nproc-per-node=2"};
  const auto records = [&](const std::string& name, Texts more) {
    more.push_back("--checkpoint.enabled=true");
    more.push_back(cat("--checkpoint.checkpoint_dir=", folder.file(name)));
    more.emplace_back("--freeze_config.freeze_embeddings=true");
    const test::ProgramResult result = test::mock_on_golden("run", "qwen3_tied", more);
    EXPECT_EQ(result.status, 0) << result.err;
    return read_records(path_join(folder.file(name), "training.jsonl"));
  };
  test::expect_equal_records(records("one", {}), records("two", cut), 2e-5);

  const std::string refusal =
      "does not support tie_word_embeddings=True: the first and the last stage would hold the same "
      "weights";
  for (const Texts& trained :
       {Texts{}, Texts{"--peft.target_modules=*_proj", "--peft.modules_to_save=embed_tokens"}}) {
    Texts options = trained;
    options.insert(options.end(), cut.begin(), cut.end() - 1);
    options.emplace_back("--world-size=2");
    const test::ProgramResult result = test::mock_on_golden("check", "qwen3_tied", options);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.out + result.err, testing::HasSubstr(refusal));
  }
}

/// A router's correction gets no gradient: the load of its experts moves it.
TEST(FreezeRunTest, AFrozenRouterKeepsItsCorrections) {
  const TemporaryDirectory folder;
  const auto corrections = [&](const std::string& name, Texts more) {
    more.push_back("--checkpoint.enabled=true");
    more.push_back(cat("--checkpoint.checkpoint_dir=", folder.file(name)));
    const test::ProgramResult result = test::mock_on_golden("run", "deepseek_v3", more);
    EXPECT_EQ(result.status, 0) << result.err;
    const std::string newest = std::filesystem::canonical(path_join(folder.file(name), "LATEST"));
    return values_of(path_join(newest, "model/consolidated"), "e_score_correction_bias");
  };
  const auto base =
      values_of(test::source_file("tests/golden/deepseek_v3"), "e_score_correction_bias");
  ASSERT_FALSE(base.empty());
  const auto all = corrections("all", {});
  const auto frozen = corrections("frozen", {"--freeze_config.trainable_parameters=lm_head"});
  const auto named = corrections("named", {"--freeze_config.frozen_parameters=e_score_corr"});
  for (const auto& [name, tensor] : base) {
    EXPECT_FALSE(at::equal(all.at(name).to(at::kFloat), tensor.to(at::kFloat))) << name;
    EXPECT_TRUE(at::equal(frozen.at(name).to(at::kFloat), tensor.to(at::kFloat))) << name;
    EXPECT_TRUE(at::equal(named.at(name).to(at::kFloat), tensor.to(at::kFloat))) << name;
  }
}

/// 21 rows in batches of 4 are five steps an epoch.
TEST(EarlyEndTest, ADefaultOfEpochsThatEndsARunBeforeMaxStepsIsToldOf) {
  const TemporaryDirectory folder;
  const std::string text = "the run ends before max_steps 1000, after ";
  const test::ProgramResult said = test::run_program(test::smoke_run(
      folder.file("said"), {"--step_scheduler.max_steps=1000", "--step_scheduler.num_epochs=2"}));
  EXPECT_EQ(said.status, 0) << said.err;
  EXPECT_THAT(said.out + said.err, testing::Not(testing::HasSubstr(text)));
  const std::string recipe = folder.write(
      "r.yaml", replace_all(read_file(test::source_file("recipes/smoke/tiny_llama_sft.yaml")),
                            "  num_epochs: 1\n", ""));
  const test::ProgramResult result =
      test::run_program({test::automodel_binary(), "run", recipe, "--step_scheduler.max_steps=1000",
                         cat("--checkpoint.checkpoint_dir=", folder.file("out"))});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out + result.err,
              testing::HasSubstr(cat(text,
                                     "60 steps: num_epochs is 10 where a recipe does not say "
                                     "it, and an epoch has 6 steps")));
}

}  // namespace
}  // namespace automodel::recipes
