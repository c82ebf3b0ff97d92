#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "core/text.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;
using testing::HasSubstr;

constexpr const char* kRecipe = "recipes/smoke/tiny_embedder.yaml";

/// `automodel COMMAND` of the smallest training for search with its results in `folder`.
std::vector<std::string> retrieval(const char* command, const std::string& folder,
                                   const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {test::automodel_binary(), command,
                                        test::source_file(kRecipe),
                                        cat("--checkpoint.checkpoint_dir=", folder)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

ProgramResult embed(const std::string& folder, const std::vector<std::string>& more = {}) {
  return test::run_program(retrieval("run", folder, more));
}

const Json& goldens() {
  static const Json all = Json::parse_file(test::source_file("tests/recipes/data/retrieval.json"));
  return all.at("cases");
}

/// The options of a run that a case of the goldens is for.
std::vector<std::string> options_of(const Json& golden) {
  std::vector<std::string> options = {
      cat("--model.pretrained_model_name_or_path=",
          test::source_file(cat("tests/recipes/data/", golden.get("model", "")))),
      cat("--model.pooling=", golden.get("pooling", "")),
      cat("--model.l2_normalize=", golden.get("normalizes", true) ? "true" : "false"),
      cat("--temperature=", golden.get("temperature", 1.0))};
  const std::string ranks = golden.get("ranks", "");
  if (ranks.empty()) return options;
  for (const char* option :
       {"--nproc-per-node=2", "--model.do_distributed_inbatch_negative=true"}) {
    options.emplace_back(option);
  }
  if (ranks == "trained") {
    options.emplace_back("--model.detach_distributed_inbatch_negatives=false");
  }
  return options;
}

/// Expects the records of a run to be those of a case, which are float64's: ranks exactly, and
/// losses and norms of gradients with at most twice the error that PyTorch's float32 has somewhere.
void expect_golden(const std::string& folder, const Json& golden) {
  const std::vector<Json> records = read_records(path_join(folder, "training.jsonl"));
  const std::vector<Json> validations = read_records(path_join(folder, "validation.jsonl"));
  const Json::Array& wanted = golden.at("records").as_array();
  ASSERT_EQ(records.size(), wanted.size());
  const auto expect_close = [&](const char* key, const Json& found, const Json& expected) {
    const double exact = expected.at(key).as_double();
    const double tolerance = 2 * golden.at("error").as_double() * exact;
    EXPECT_NEAR(found.at(key).as_double(), exact, tolerance) << key;
  };
  const auto expect_same = [](const char* key, const Json& found, const Json& expected) {
    EXPECT_DOUBLE_EQ(found.at(key).as_double(), expected.at(key).as_double()) << key;
  };
  size_t num_validations = 0;
  double sum = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(i);
    expect_close("loss", records[i], wanted[i]);
    expect_close("grad_norm", records[i], wanted[i]);
    expect_same("train_accuracy", records[i], wanted[i]);
    EXPECT_EQ(records[i].at("num_label_tokens").as_int(), 8);
    sum += records[i].at("loss").as_double();
    EXPECT_NEAR(records[i].at("loss_avg_window").as_double(), sum / static_cast<double>(i + 1),
                1e-12);
    if (!wanted[i].contains("val_loss")) continue;
    ASSERT_LT(num_validations, validations.size());
    const Json& validation = validations[num_validations++];
    expect_close("val_loss", validation, wanted[i]);
    expect_same("val_acc1", validation, wanted[i]);
    expect_same("val_mrr", validation, wanted[i]);
  }
  EXPECT_EQ(num_validations, validations.size());
}

class RetrievalRunTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Cases, RetrievalRunTest,
                         testing::Values("mean", "mean_dot", "last", "sum", "bert_first",
                                         "modernbert_mean", "shared", "shared_trained"),
                         [](const auto& info) { return info.param; });

TEST_P(RetrievalRunTest, LossesAndRanksAreThoseOfPython) {
  const TemporaryDirectory folder;
  const Json& golden = goldens().at(GetParam());
  const ProgramResult run = embed(folder.file("run"), options_of(golden));
  ASSERT_EQ(run.status, 0) << run.err;
  expect_golden(folder.file("run"), golden);
}

class RetrievalRanksTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Strategies, RetrievalRanksTest,
                         testing::Values("fsdp2", "ddp", "megatron_fsdp"),
                         [](const auto& info) { return info.param; });

TEST_P(RetrievalRanksTest, TwoRanksTrainAsOneDoes) {
  for (const char* name : {"mean", "bert_first", "shared_trained"}) {
    SCOPED_TRACE(name);
    const TemporaryDirectory folder;
    const Json& golden = goldens().at(name);
    std::vector<std::string> options = options_of(golden);
    if (!golden.contains("ranks")) options.emplace_back("--nproc-per-node=2");
    options.push_back(cat("--distributed.strategy=", GetParam()));
    if (std::string_view(GetParam()) == "fsdp2") {
      options.insert(options.end(), {"--distributed.mp_policy._target_=MixedPrecisionPolicy",
                                     "--distributed.mp_policy.param_dtype=float32",
                                     "--distributed.mp_policy.reduce_dtype=float32"});
    }
    const ProgramResult run = embed(folder.file("run"), options);
    ASSERT_EQ(run.status, 0) << run.err;
    expect_golden(folder.file("run"), golden);
  }
}

TEST(RetrievalRunTest, FolderIsThatOfAModelWithoutHead) {
  const TemporaryDirectory folder;
  ASSERT_EQ(embed(folder.file("run"), {"--step_scheduler.max_steps=1"}).status, 0);
  const std::string made = folder.file("run/LATEST/model/consolidated");
  const Json config = Json::parse_file(path_join(made, "config.json"));
  EXPECT_EQ(config.at("architectures").as_array().front().as_string(), "LlamaModel");
  EXPECT_EQ(config.at("model_type").as_string(), "llama");
  EXPECT_FALSE(config.at("is_causal").as_bool());
  EXPECT_EQ(config.at("pooling").as_string(), "avg");
  const Json names = Json::parse_file(path_join(made, "model.safetensors.index.json"));
  EXPECT_TRUE(names.at("weight_map").contains("layers.0.self_attn.q_proj.weight"));
  EXPECT_TRUE(names.at("weight_map").contains("embed_tokens.weight"));
  EXPECT_EQ(names.at("weight_map").size(), 20);
  EXPECT_TRUE(path_exists(path_join(made, "tokenizer.json")));
  EXPECT_FALSE(path_exists(path_join(made, "generation_config.json")));

  // What Sentence Transformers 5.4 read.
  const auto text_of = [&](const char* name) { return Json::parse_file(path_join(made, name)); };
  EXPECT_EQ(text_of("1_Pooling/config.json").dump(),
            R"({"embedding_dimension": 16, "pooling_mode": "mean", "include_prompt": true})");
  EXPECT_EQ(text_of("config_sentence_transformers.json").dump(),
            R"({"prompts": {"query": "query: ", "document": "passage: "}, )"
            R"("default_prompt_name": null, "similarity_fn_name": "cosine"})");
  EXPECT_EQ(text_of("sentence_bert_config.json").dump(),
            R"({"max_seq_length": 64, "do_lower_case": false})");
  const Json modules = text_of("modules.json");
  ASSERT_EQ(modules.size(), 3);
  EXPECT_EQ(modules.as_array()[1].dump(),
            R"({"idx": 1, "name": "1", "path": "1_Pooling", )"
            R"("type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling"})");
}

/// The folder that a run made is one that a run begins with, as it pools.
TEST(RetrievalRunTest, AnExportedFolderIsTrainedOn) {
  const TemporaryDirectory folder;
  const std::vector<std::string> pooling = {"--model.pooling=last", "--model.l2_normalize=false",
                                            "--temperature=none"};
  ASSERT_EQ(embed(folder.file("whole"), pooling).status, 0);
  std::vector<std::string> three = pooling;
  three.emplace_back("--step_scheduler.max_steps=3");
  ASSERT_EQ(embed(folder.file("half"), three).status, 0);
  const ProgramResult again = embed(
      folder.file("again"),
      {cat("--model.pretrained_model_name_or_path=", folder.file("half/LATEST/model/consolidated")),
       "--model.pooling=none", "--model.l2_normalize=none", "--temperature=none",
       "--optimizer.lr=1e-12", "--step_scheduler.max_steps=1"});
  ASSERT_EQ(again.status, 0) << again.err;
  // The first three steps took all of the rows, so both losses are of the first eight.
  const std::vector<Json> whole = read_records(folder.file("whole/training.jsonl"));
  const std::vector<Json> found = read_records(folder.file("again/training.jsonl"));
  ASSERT_EQ(whole.size(), 6U);
  EXPECT_NEAR(found.at(0).at("loss").as_double(), whole[3].at("loss").as_double(), 1e-6);
}

/// PEFT loads the adapter on what AutoModel loads, whose tensors have no "model." before them.
TEST(RetrievalRunTest, AdaptersAreOfAModelWithoutHead) {
  const TemporaryDirectory folder;
  const std::vector<std::string> adapted = {"--peft._target_=PeftConfig",
                                            "--peft.target_modules=*_proj", "--peft.dim=4"};
  const ProgramResult run = embed(folder.file("run"), adapted);
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string made = folder.file("run/LATEST/model");
  const Json config = Json::parse_file(path_join(made, "adapter_config.json"));
  EXPECT_EQ(config.at("task_type").as_string(), "FEATURE_EXTRACTION");
  const checkpoint::SafetensorsFile file(path_join(made, "adapter_model.safetensors"));
  EXPECT_NE(file.find("base_model.model.layers.0.self_attn.q_proj.lora_A.weight"), nullptr);
  // Two ranks train the same, and merged into the base the adapter gives the same losses.
  std::vector<std::string> two = adapted;
  two.insert(two.end(), {"--nproc-per-node=2", "--distributed.strategy=fsdp2",
                         "--distributed.mp_policy._target_=MixedPrecisionPolicy",
                         "--distributed.mp_policy.param_dtype=float32",
                         "--distributed.mp_policy.reduce_dtype=float32"});
  ASSERT_EQ(embed(folder.file("two"), two).status, 0);
  test::expect_equal_records(read_records(folder.file("run/training.jsonl")),
                             read_records(folder.file("two/training.jsonl")), 1e-5);
  const ProgramResult merged = test::run_program(
      {test::automodel_binary(), "merge-lora",
       test::source_file("tests/recipes/data/tiny_classifier"), made, folder.file("merged")});
  ASSERT_EQ(merged.status, 0) << merged.err;
  const Json merged_config = Json::parse_file(folder.file("merged/config.json"));
  EXPECT_EQ(merged_config.at("architectures").dump(), R"(["LlamaModel"])");
  EXPECT_EQ(merged_config.at("pooling").as_string(), "avg");
  EXPECT_FALSE(merged_config.at("is_causal").as_bool());
  EXPECT_TRUE(path_exists(folder.file("merged/modules.json")));
  EXPECT_TRUE(path_exists(folder.file("merged/1_Pooling/config.json")));
  EXPECT_FALSE(path_exists(folder.file("merged/generation_config.json")));
  const ProgramResult validated = embed(
      folder.file("validated"),
      {cat("--model.pretrained_model_name_or_path=", folder.file("merged")), "--optimizer.lr=1e-12",
       "--step_scheduler.max_steps=1", "--step_scheduler.val_every_steps=1"});
  ASSERT_EQ(validated.status, 0) << validated.err;
  EXPECT_NEAR(
      read_records(folder.file("validated/validation.jsonl")).at(0).at("val_loss").as_double(),
      read_records(folder.file("run/validation.jsonl")).back().at("val_loss").as_double(), 1e-5);
}

TEST(RetrievalRunTest, AStoppedRunGoesOnAsIfNothingHadBeen) {
  const TemporaryDirectory folder;
  ASSERT_EQ(embed(folder.file("whole")).status, 0);
  ASSERT_EQ(embed(folder.file("run"), {"--step_scheduler.max_steps=4"}).status, 0);
  ASSERT_EQ(embed(folder.file("run")).status, 0);
  const std::vector<Json> whole = read_records(folder.file("whole/training.jsonl"));
  const std::vector<Json> found = read_records(folder.file("run/training.jsonl"));
  ASSERT_EQ(found.size(), 6U);
  for (const size_t step : {4, 5}) {
    EXPECT_EQ(found[step].at("loss").as_double(), whole[step].at("loss").as_double());
    EXPECT_EQ(found[step].at("train_accuracy").as_double(),
              whole[step].at("train_accuracy").as_double());
  }
}

/// Labels tell texts apart, whatever a loss would leave out.
TEST(RetrievalRunTest, ALossSectionChangesNothing) {
  const TemporaryDirectory folder;
  const auto first_loss = [&](const char* name, const std::vector<std::string>& more) {
    std::vector<std::string> options = {"--step_scheduler.max_steps=1"};
    options.insert(options.end(), more.begin(), more.end());
    const ProgramResult run = embed(folder.file(name), options);
    EXPECT_EQ(run.status, 0) << run.err;
    return read_records(folder.file(cat(name, "/training.jsonl"))).at(0).at("loss").as_double();
  };
  const double wanted = first_loss("plain", {});
  for (const char* index : {"-1", "-2"}) {
    EXPECT_EQ(first_loss(index, {"--loss_fn._target_=MaskedCrossEntropy",
                                 cat("--loss_fn.ignore_index=", index)}),
              wanted);
  }
}

/// Attention from left to right is a choice, which the folder keeps and a checkpoint belongs to.
TEST(RetrievalRunTest, AModelMayReadFromLeftToRight) {
  const TemporaryDirectory folder;
  const auto first_loss = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> options = {"--step_scheduler.max_steps=1", "--optimizer.lr=1e-12"};
    options.insert(options.end(), more.begin(), more.end());
    const ProgramResult run = embed(folder.file(name), options);
    EXPECT_EQ(run.status, 0) << run.err;
    return read_records(folder.file(cat(name, "/training.jsonl"))).at(0).at("loss").as_double();
  };
  const double both = first_loss("both", {});
  const double causal = first_loss("causal", {"--model.is_causal=true"});
  EXPECT_GT(std::abs(both - causal), 1e-3);
  const std::string made = folder.file("causal/LATEST/model/consolidated");
  EXPECT_NEAR(first_loss("again", {cat("--model.pretrained_model_name_or_path=", made)}), causal,
              1e-6);
  EXPECT_EQ(test::run_program({test::automodel_binary(), "parity", "--export", made}).status, 0);
  for (const char* other :
       {"--model.is_causal=false", "--model.pooling=last", "--model.l2_normalize=false"}) {
    const ProgramResult resumed =
        embed(folder.file("causal"), {"--model.is_causal=true", other, "--temperature=none"});
    EXPECT_EQ(resumed.status, 3) << other;
    EXPECT_THAT(resumed.err, HasSubstr("is of another model")) << other;
  }
}

TEST(RetrievalRunTest, WhatIsNotHereIsSaid) {
  const TemporaryDirectory folder;
  const auto checked = [&](const std::vector<std::string>& more) {
    return test::run_program(retrieval("check", folder.file("run"), more));
  };
  const ProgramResult colbert = checked({"--model.pooling=colbert"});
  EXPECT_EQ(colbert.status, 6);
  EXPECT_THAT(colbert.out, HasSubstr("an embedding of each token, is not in this version"));
  const ProgramResult pairs = checked({"--dataset.model_type=cross_encoder"});
  EXPECT_EQ(pairs.status, 6);
  EXPECT_THAT(pairs.out, HasSubstr("models that score pairs of texts are not in this version"));
  const std::pair<const char*, const char*> splits[] = {
      {"tp_size", "a model that makes embeddings of texts is not split"},
      {"cp_size", "embeddings are made of whole texts"}};
  for (const auto& [size, reason] : splits) {
    const ProgramResult split = checked(
        {cat("--distributed.", size, "=2"), "--distributed.strategy=fsdp2", "--world-size=2"});
    EXPECT_NE(split.status, 0);
    EXPECT_THAT(split.out, HasSubstr(reason));
  }
  EXPECT_THAT(checked({"--tokenizer.add_eos_token=true"}).out,
              HasSubstr("which know no tokens that the recipe adds to texts"));
  const ProgramResult alone = checked({"--validation_dataset.eval_negative_size=0"});
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.out, HasSubstr("[validation_dataset.eval_negative_size]"));
  EXPECT_THAT(checked({cat("--model.pretrained_model_name_or_path=",
                           test::source_file("tests/recipes/data/tiny_encoder")),
                       "--dataloader.collate_fn.p_max_len=512"})
                  .out,
              HasSubstr("p_max_len is 512, and the model has positions for 64 tokens"));
  EXPECT_THAT(checked({"--tokenizer.add_eos=true"}).out, HasSubstr("[tokenizer.add_eos]"));
  const ProgramResult sum = checked({"--model.pooling=weighted_avg"});
  EXPECT_EQ(sum.status, 0) << sum.out;
  EXPECT_THAT(sum.out,
              HasSubstr("exported folders are without the files of Sentence Transformers"));
}

}  // namespace
}  // namespace automodel::recipes
