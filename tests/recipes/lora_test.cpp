// Runs of the program that train adapters.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/hf_folder.h"
#include "checkpoint/safetensors.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::expect_equal_records;
using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;

constexpr const char* kAdapters = "--peft._target_=nemo_automodel.components._peft.lora.PeftConfig";

/// Six steps with adapters at a rate at which they move.
std::vector<std::string> lora_run(const std::string& folder, const test::Spread& spread,
                                  const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = test::smoke_run(folder, {kAdapters, "--optimizer.lr=1e-2"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return test::on(spread, std::move(arguments));
}

std::vector<Json> records_of(const std::string& folder, const test::Spread& spread,
                             const std::vector<std::string>& more = {}) {
  const ProgramResult run = test::run_program(lora_run(folder, spread, more));
  EXPECT_EQ(run.status, 0) << run.err;
  return read_records(path_join(folder, "training.jsonl"));
}

/// The checkpoint that LATEST names.
std::string newest(const std::string& folder) {
  return std::filesystem::canonical(path_join(folder, "LATEST")).string();
}

std::string adapter_bytes(const std::string& folder) {
  return read_file(path_join(newest(folder), "model/adapter_model.safetensors"));
}

const std::vector<std::string> kLargeBatches = {
    "--dataset.path_or_dataset_id=recipes/data/gsm8k_train.jsonl",
    "--step_scheduler.global_batch_size=16", "--step_scheduler.local_batch_size=2",
    "--checkpoint.enabled=false"};

/// Six steps on any spread give the numbers of one process.
TEST(LoraTest, LossesDoNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = records_of(folder.file("one"), {1, {}}, kLargeBatches);
  ASSERT_EQ(one.size(), 6u);
  EXPECT_NE(one.front().at("loss").as_double(), one.back().at("loss").as_double());
  const std::vector<std::pair<const char*, test::Spread>> spreads = {
      {"ddp on 2", {2, {}}},
      {"fsdp2 on 2", test::sharded(2)},
      {"fsdp2 on 4", test::sharded(4)},
      {"hsdp on 2 x 2", test::sharded(4, {"--distributed.dp_replicate_size=2"})},
      {"tensor parallel on 2", test::sharded(2, {"--distributed.tp_size=2"})},
      {"sequence parallel on 2",
       test::sharded(2, {"--distributed.tp_size=2", "--distributed.sequence_parallel=true"})},
      {"tensor parallel and fsdp2 on 4", test::sharded(4, {"--distributed.tp_size=2"})},
      {"context parallel on 2", test::sharded(2, {"--distributed.cp_size=2"})},
      {"activation checkpointing", {1, {"--distributed.activation_checkpointing=true"}}},
      {"selective activation checkpointing",
       {1, {"--distributed.activation_checkpointing=selective"}}},
      {"fsdp2 with activation checkpointing",
       test::sharded(2, {"--distributed.activation_checkpointing=true"})},
  };
  for (const auto& [name, spread] : spreads) {
    SCOPED_TRACE(name);
    // Some roundings of float32 sums, as in RanksTest.
    expect_equal_records(one, records_of(folder.file(name), spread, kLargeBatches), 1e-5);
  }
}

/// An untied model of eight layers with adapters on all linear layers, the head among them.
std::vector<std::string> deep_model(const std::vector<std::string>& more = {}) {
  std::vector<std::string> options = {
      "--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config",
      "--model.config=tests/recipes/data/llama_8_layers",
      "--model.pretrained_model_name_or_path=",
      "--peft.match_all_linear=true",
      "--optimizer.lr=1e-3",  // a larger one multiplies roundings from step to step
      "--step_scheduler.local_batch_size=4"};
  options.insert(options.begin(), kLargeBatches.begin(), kLargeBatches.end());
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

TEST(LoraTest, AHeadsAdapterAndStagesHaveTheLossesOfOneProcess) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = records_of(folder.file("one"), {1, {}}, deep_model());
  ASSERT_EQ(one.size(), 6u);
  const auto staged = [](int num_ranks, const std::string& schedule,
                         const std::vector<std::string>& more = {}) {
    std::vector<std::string> options = {"--distributed.pp_size=2",
                                        cat("--distributed.pipeline.pp_schedule=", schedule)};
    options.insert(options.end(), more.begin(), more.end());
    return test::sharded(num_ranks, options);
  };
  const std::vector<std::pair<const char*, test::Spread>> spreads = {
      {"fsdp2 on 2", test::sharded(2)},
      {"tensor parallel on 2", test::sharded(2, {"--distributed.tp_size=2"})},
      {"sequence parallel on 2",
       test::sharded(2, {"--distributed.tp_size=2", "--distributed.sequence_parallel=true"})},
      {"1F1B", staged(2, "1f1b")},
      {"zero bubble", staged(2, "ZBVZeroBubble")},
      {"1F1B and tensor parallel", staged(4, "1f1b", {"--distributed.tp_size=2"})},
      {"1F1B with activation checkpointing",
       staged(2, "1f1b", {"--distributed.activation_checkpointing=true"})},
      {"megatron_fsdp on 2", {2, {"--distributed.strategy=megatron_fsdp"}}},
      {"megatron_fsdp at ZeRO 1",
       {2, {"--distributed.strategy=megatron_fsdp", "--distributed.zero_dp_strategy=1"}}},
      {"megatron_fsdp without sharding",
       {2, {"--distributed.strategy=megatron_fsdp", "--distributed.zero_dp_strategy=0"}}},
  };
  for (const auto& [name, spread] : spreads) {
    SCOPED_TRACE(name);
    expect_equal_records(one, records_of(folder.file(name), spread, deep_model()), 1e-5);
  }
}

std::vector<std::pair<const char*, test::Spread>> tensor_parallel_spreads() {
  return {{"tensor parallel", test::sharded(2, {"--distributed.tp_size=2"})},
          {"sequence parallel",
           test::sharded(2, {"--distributed.tp_size=2", "--distributed.sequence_parallel=true"})}};
}

TEST(LoraTest, ATiedHeadsAdapterDoesNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  std::vector<std::string> more = kLargeBatches;
  more.emplace_back("--peft.match_all_linear=true");
  const std::vector<Json> one = records_of(folder.file("one"), {1, {}}, more);
  // The frozen embedding is on the first and the last stage, the head's adapter on the last.
  const auto staged =
      test::sharded(2, {"--distributed.pp_size=2", "--distributed.pipeline.pp_schedule=1f1b"});
  expect_equal_records(one, records_of(folder.file("staged"), staged, more), 1e-5);
  expect_equal_records(one, records_of(folder.file("ddp"), {2, {}}, more), 1e-5);
  expect_equal_records(one, records_of(folder.file("fsdp2"), test::sharded(2), more), 1e-5);
  for (const auto& [name, spread] : tensor_parallel_spreads()) {
    SCOPED_TRACE(name);
    expect_equal_records(one, records_of(folder.file(name), spread, more), 1e-5);
  }
  // Without a style for the embedding every rank has the whole head, for all positions.
  std::string styles =
      "--distributed.tp_plan={'model.layers.*.self_attn.o_proj': 'rowwise', "
      "'model.layers.*.mlp.down_proj': 'rowwise'";
  for (const char* name : {"self_attn.q", "self_attn.k", "self_attn.v", "mlp.gate", "mlp.up"}) {
    styles += cat(", 'model.layers.*.", name, "_proj': 'colwise'");
  }
  const std::vector<std::string> whole = {"--distributed.tp_size=2",
                                          "--distributed.sequence_parallel=true", styles + "}"};
  expect_equal_records(one, records_of(folder.file("whole"), test::sharded(2, whole), more), 1e-5);
}

/// The records of a run with DoRA, which `more` asks for afterwards. Its magnitudes begin as the
/// base's norms, so its first loss is that of plain adapters.
std::vector<Json> dora_records(const TemporaryDirectory& folder, std::vector<std::string>& more) {
  const std::vector<Json> plain = records_of(folder.file("plain"), {1, {}}, more);
  more.emplace_back("--peft.use_dora=true");
  std::vector<Json> one = records_of(folder.file("one"), {1, {}}, more);
  const double base = plain.at(0).at("loss").as_double();
  EXPECT_NEAR(one.at(0).at("loss").as_double(), base, 1e-6 * base);
  return one;
}

TEST(LoraTest, DoraOfATiedHeadBeginsWithTheEmbeddingsRows) {
  const TemporaryDirectory folder;
  std::vector<std::string> more = kLargeBatches;
  more.emplace_back("--peft.match_all_linear=true");
  const std::vector<Json> one = dora_records(folder, more);
  expect_equal_records(one, records_of(folder.file("fsdp2"), test::sharded(2), more), 1e-5);
  for (const auto& [name, spread] : tensor_parallel_spreads()) {
    SCOPED_TRACE(name);
    expect_equal_records(one, records_of(folder.file(name), spread, more), 1e-5);
  }
}

/// GPT-2's weights are stored [in, out]: c_attn and c_fc have more outputs than inputs, mlp.c_proj
/// fewer.
TEST(LoraTest, DoraOfTransposedWeightsBeginsWithTheirColumns) {
  const TemporaryDirectory folder;
  std::vector<std::string> more = kLargeBatches;
  for (const char* option :
       {"--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config",
        "--model.config=configs/tiny/gpt2", "--model.resid_pdrop=0", "--model.embd_pdrop=0",
        "--model.attn_pdrop=0", "--model.pretrained_model_name_or_path=",
        "--peft.target_modules=['*.c_attn','*.c_fc','*.c_proj']"}) {
    more.emplace_back(option);
  }
  const std::vector<Json> one = dora_records(folder, more);
  expect_equal_records(one, records_of(folder.file("fsdp2"), test::sharded(2), more), 1e-5);
  expect_equal_records(one, records_of(folder.file("four"), test::sharded(4), more), 1e-5);
}

/// Six steps of a model with experts. The aux loss is a mean over the tokens of a micro-batch, so
/// it differs between spreads, and is left out.
std::vector<Json> expert_records(const std::string& folder, const test::Spread& spread,
                                 const std::vector<std::string>& more = {}) {
  std::vector<std::string> options = {kAdapters, "--optimizer.lr=1e-3",
                                      "--model.config.router_aux_loss_coef=0",
                                      cat("--checkpoint.checkpoint_dir=", folder)};
  options.insert(options.end(), spread.options.begin(), spread.options.end());
  options.insert(options.end(), more.begin(), more.end());
  const ProgramResult run = test::run_program(test::on(
      {spread.num_ranks, options},
      {test::automodel_binary(), "run", test::source_file("recipes/smoke/tiny_qwen3_moe.yaml")}));
  EXPECT_EQ(run.status, 0) << run.err;
  return read_records(path_join(folder, "training.jsonl"));
}

/// Experts are frozen and may lie on different ranks.
TEST(LoraTest, AdaptersBesideExpertsDoNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = expert_records(folder.file("one"), {1, {}});
  ASSERT_EQ(one.size(), 6u);
  expect_equal_records(one, expert_records(folder.file("fsdp2"), {2, {}}), 1e-5);
  const std::vector<std::string> split = {"--distributed.ep_size=2"};
  expect_equal_records(one, expert_records(folder.file("ep2"), {2, split}), 1e-5);
  expect_equal_records(one, expert_records(folder.file("ep2 on 4"), {4, split}), 1e-5);
}

const std::vector<std::string> kExpertAdapters = {"--peft.target_modules=[\"*\"]",
                                                  "--peft.moe_rank_scaling=true", "--peft.dim=8"};

TEST(LoraTest, AdaptersOfExpertsDoNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = expert_records(folder.file("one"), {1, {}}, kExpertAdapters);
  ASSERT_EQ(one.size(), 6u);
  const std::vector<std::pair<const char*, test::Spread>> spreads = {
      {"fsdp2", {2, {}}},
      {"fsdp2 on 4", {4, {}}},
      {"ddp", {2, {"--distributed.strategy=ddp", "--distributed.mp_policy=none"}}},
      {"ep2", {2, {"--distributed.ep_size=2"}}},
      {"ep2 on 4", {4, {"--distributed.ep_size=2"}}},
      {"tp2", {2, {"--distributed.tp_size=2", "--peft.target_modules=[\"*experts\"]"}}},
      {"pp2", {2, {"--distributed.pp_size=2", "--distributed.pipeline.pp_schedule=1f1b"}}},
      {"activation checkpointing", {1, {"--distributed.activation_checkpointing=true"}}},
  };
  const std::vector<Json> experts_only = expert_records(
      folder.file("experts"), {1, {}},
      {"--peft.target_modules=[\"*experts\"]", "--peft.moe_rank_scaling=true", "--peft.dim=8"});
  for (const auto& [name, spread] : spreads) {
    SCOPED_TRACE(name);
    // What splits the embedding's head does not adapt it.
    const bool is_split = std::string(name) == "tp2";
    std::vector<std::string> more = kExpertAdapters;
    if (is_split) more.erase(more.begin());
    expect_equal_records(is_split ? experts_only : one,
                         expert_records(folder.file(name), spread, more), 1e-5);
  }
}

/// Every expert that saw a token has moved, and the ranks are those that the section names.
TEST(LoraTest, TheAdapterOfEveryExpertIsTrainedAndSaved) {
  const TemporaryDirectory folder;
  expert_records(folder.file("run"), {2, {"--distributed.ep_size=2"}}, kExpertAdapters);
  const std::string adapter = path_join(newest(folder.file("run")), "model");
  const Json config = Json::parse_file(path_join(adapter, "adapter_config.json"));
  EXPECT_EQ(config.at("r").as_int(), 8);
  const auto& targets = config.at("target_parameters").as_array();
  ASSERT_EQ(targets.size(), 2u);
  for (const Json& target : targets) {
    EXPECT_EQ(config.at("rank_pattern").at(target.as_string()).as_int(), 4);
  }
  const checkpoint::SafetensorsFile file(path_join(adapter, "adapter_model.safetensors"));
  int64_t count = 0;
  for (const auto& entry : file.tensors()) {
    if (entry.name.find("experts") == std::string::npos || !entry.name.ends_with("lora_B.weight")) {
      continue;
    }
    const at::Tensor b = file.read(entry.name);
    const int64_t num_experts = b.size(1) / 4;
    const at::Tensor moved = b.view({b.size(0), 4, num_experts}).abs().amax({0, 1});
    EXPECT_GT(moved.min().item<float>(), 0.0F) << entry.name;
    ++count;
  }
  EXPECT_GT(count, 0);
}

TEST(LoraTest, AdaptersOfExpertsContinueAndMerge) {
  const TemporaryDirectory folder;
  const test::Spread spread{2, {"--distributed.ep_size=2"}};
  std::vector<std::string> more = kExpertAdapters;
  more.emplace_back("--lr_scheduler.lr_decay_style=constant");
  const auto whole = expert_records(folder.file("whole"), spread, more);
  std::vector<std::string> half = more;
  half.emplace_back("--step_scheduler.max_steps=3");
  expert_records(folder.file("parts"), spread, half);
  expect_equal_records(whole, expert_records(folder.file("parts"), spread, more), 0);
  EXPECT_EQ(adapter_bytes(folder.file("whole")), adapter_bytes(folder.file("parts")));

  // From the saved folder on another mesh: the loss goes on where it was.
  const std::string adapter = path_join(newest(folder.file("whole")), "model");
  more.emplace_back(cat("--peft.adapter_name_or_path=", adapter));
  const auto on_one = expert_records(folder.file("next"), {1, {}}, more);
  const auto on_two = expert_records(folder.file("next on 2"), spread, more);
  EXPECT_NE(on_one[0].at("loss").as_double(), whole[0].at("loss").as_double());
  EXPECT_NEAR(on_one[0].at("loss").as_double(), on_two[0].at("loss").as_double(), 1e-5);
}

/// A first stage without adapters has nothing to compute backward, a later one only its input's
/// gradient.
TEST(LoraTest, StagesWithoutAdaptersHaveTheLossesOfOneProcess) {
  const TemporaryDirectory folder;
  for (const char* layer : {"7", "0"}) {
    std::vector<std::string> more = deep_model({"--checkpoint.enabled=true"});
    std::erase(more, "--peft.match_all_linear=true");
    more.push_back(cat("--peft.target_modules=['*.layers.", layer, ".*_proj']"));
    const std::vector<Json> one = records_of(folder.file(cat("one", layer)), {1, {}}, more);
    ASSERT_EQ(one.size(), 6u);
    EXPECT_NE(one.front().at("loss").as_double(), one.back().at("loss").as_double());
    for (const char* schedule : {"1f1b", "ZBVZeroBubble"}) {
      for (const char* recomputes : {"false", "true"}) {
        if (schedule == std::string("ZBVZeroBubble") && recomputes == std::string("true")) continue;
        const std::string name = cat(layer, schedule, recomputes);
        SCOPED_TRACE(name);
        const auto spread = test::sharded(
            2, {"--distributed.pp_size=2", cat("--distributed.pipeline.pp_schedule=", schedule),
                cat("--distributed.activation_checkpointing=", recomputes)});
        expect_equal_records(one, records_of(folder.file(name), spread, more), 1e-5);
        const checkpoint::SafetensorsFile saved(
            path_join(newest(folder.file(name)), "model/adapter_model.safetensors"));
        EXPECT_EQ(saved.tensors().size(), 14u);
      }
    }
  }
}

/// What a stage's rank has trained is in the adapter that rank 0 writes.
TEST(LoraTest, AStagedRunSavesTheWholeAdapter) {
  const TemporaryDirectory folder;
  const std::vector<std::string> saves = deep_model({"--checkpoint.enabled=true"});
  records_of(folder.file("one"), {1, {}}, saves);
  records_of(
      folder.file("staged"),
      test::sharded(2, {"--distributed.pp_size=2", "--distributed.pipeline.pp_schedule=1f1b"}),
      saves);
  const auto file_of = [&](const char* name) {
    return checkpoint::SafetensorsFile(
        path_join(newest(folder.file(name)), "model/adapter_model.safetensors"));
  };
  const checkpoint::SafetensorsFile one = file_of("one");
  const checkpoint::SafetensorsFile staged = file_of("staged");
  ASSERT_EQ(one.tensors().size(), 2u * (8 * 7 + 1));
  ASSERT_EQ(staged.tensors().size(), one.tensors().size());
  for (const auto& entry : one.tensors()) {
    EXPECT_TRUE(at::allclose(one.read(entry.name), staged.read(entry.name), 1e-3, 1e-4))
        << entry.name;
  }
}

TEST(LoraTest, AdaptersOfSomeLayersDoNotDependOnTheSpreadEither) {
  const TemporaryDirectory folder;
  std::vector<std::string> more = kLargeBatches;
  more.push_back("--peft.target_modules=['*.layers.1.*q_proj','*.layers.1.*v_proj']");
  const std::vector<Json> one = records_of(folder.file("one"), {1, {}}, more);
  expect_equal_records(one, records_of(folder.file("fsdp2"), test::sharded(2), more), 1e-5);
  expect_equal_records(
      one, records_of(folder.file("tp"), test::sharded(2, {"--distributed.tp_size=2"}), more),
      1e-5);
}

TEST(LoraTest, DoraDoesNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  std::vector<std::string> more = kLargeBatches;
  more.emplace_back("--peft.use_dora=true");
  const std::vector<Json> one = records_of(folder.file("one"), {1, {}}, more);
  expect_equal_records(one, records_of(folder.file("two"), test::sharded(2), more), 1e-5);
  expect_equal_records(
      one,
      records_of(folder.file("ddp"), {2, {"--distributed.activation_checkpointing=true"}}, more),
      1e-5);
  for (const auto& [name, spread] : tensor_parallel_spreads()) {
    SCOPED_TRACE(name);
    expect_equal_records(one, records_of(folder.file(name), spread, more), 1e-5);
  }
  const auto on_four = test::sharded(4, {"--distributed.tp_size=2"});
  expect_equal_records(one, records_of(folder.file("four"), on_four, more), 1e-5);
}

/// A mask belongs to the tokens and features of the whole layer, whoever holds them.
TEST(LoraTest, DropoutDoesNotDependOnHowSequencesAndFeaturesAreSplit) {
  const TemporaryDirectory folder;
  std::vector<std::pair<const char*, test::Spread>> spreads = tensor_parallel_spreads();
  spreads.emplace_back("context parallel", test::sharded(2, {"--distributed.cp_size=2"}));
  spreads.emplace_back("all of them",
                       test::sharded(4, {"--distributed.tp_size=2", "--distributed.cp_size=2",
                                         "--distributed.sequence_parallel=true"}));
  std::vector<double> last_losses;
  for (const char* position : {"pre", "post"}) {
    for (const char* is_dora : {"false", "true"}) {
      const std::string name = cat(position, "-", is_dora, "-");
      std::vector<std::string> more = kLargeBatches;
      more.insert(more.end(), {"--peft.dropout=0.3", cat("--peft.dropout_position=", position),
                               cat("--peft.use_dora=", is_dora)});
      const std::vector<Json> one = records_of(folder.file(name + "one"), {1, {}}, more);
      ASSERT_EQ(one.size(), 6u);
      last_losses.push_back(one.back().at("loss").as_double());
      for (const auto& [split, spread] : spreads) {
        SCOPED_TRACE(cat(name, split));
        expect_equal_records(one, records_of(folder.file(name + split), spread, more), 1e-5);
      }
    }
  }
  for (size_t i = 1; i < last_losses.size(); ++i) EXPECT_NE(last_losses[i], last_losses[0]) << i;
}

/// Masks are keyed by step, micro-batch and layer: a block that is computed again draws the same.
TEST(LoraTest, DropoutIsTheSameWhereBlocksAreComputedAgain) {
  const TemporaryDirectory folder;
  for (const char* position : {"pre", "post"}) {
    std::vector<std::string> more = kLargeBatches;
    more.insert(more.end(), {"--peft.dropout=0.3", cat("--peft.dropout_position=", position)});
    const auto plain = records_of(folder.file(cat("plain", position)), test::sharded(2), more);
    more.emplace_back("--distributed.activation_checkpointing=true");
    const auto again = records_of(folder.file(cat("again", position)), test::sharded(2), more);
    expect_equal_records(plain, again, 1e-6);
  }
}

TEST(LoraTest, TheFirstLossIsTheBaseModels) {
  const TemporaryDirectory folder;
  const std::vector<Json> with = records_of(folder.file("with"), {1, {}});
  const ProgramResult run = test::run_program(test::smoke_run(folder.file("without")));
  ASSERT_EQ(run.status, 0) << run.err;
  const std::vector<Json> without = read_records(folder.file("without/training.jsonl"));
  EXPECT_EQ(with[0].at("loss").as_double(), without[0].at("loss").as_double());
  EXPECT_NE(with[1].at("loss").as_double(), without[1].at("loss").as_double());
}

TEST(LoraTest, ACheckpointHoldsAdaptersAlone) {
  const TemporaryDirectory folder;
  records_of(folder.file("run"), test::sharded(2));
  const std::string model = path_join(newest(folder.file("run")), "model");
  for (const char* name : {"adapter_model.safetensors", "adapter_config.json",
                           "automodel_peft_config.json", "tokenizer.json"}) {
    EXPECT_TRUE(path_exists(path_join(model, name))) << name;
  }
  EXPECT_FALSE(path_exists(path_join(model, "consolidated")));
  for (const std::string& name : list_directory(model)) {
    if (!name.ends_with(".safetensors")) continue;
    const checkpoint::SafetensorsFile file(path_join(model, name));
    EXPECT_FALSE(file.tensors().empty());
    for (const auto& entry : file.tensors()) {
      EXPECT_NE(entry.name.find("lora_"), std::string::npos) << name << ": " << entry.name;
    }
  }
  const Json config = Json::parse_file(path_join(model, "adapter_config.json"));
  EXPECT_EQ(config.at("peft_type").as_string(), "LORA");
  EXPECT_EQ(config.at("r").as_int(), 8);
  EXPECT_EQ(config.at("target_modules").size(), 14u);
}

/// A run that stops half way and continues ends with the bytes of one that does not.
TEST(LoraTest, ContinuesToTheLastBit) {
  for (const bool is_dora : {false, true}) {
    const TemporaryDirectory folder;
    const std::vector<std::string> more = {cat("--peft.use_dora=", is_dora ? "true" : "false"),
                                           "--lr_scheduler.lr_decay_style=constant"};
    const test::Spread spread = test::sharded(2);
    const auto whole = records_of(folder.file("whole"), spread, more);
    std::vector<std::string> half = more;
    half.emplace_back("--step_scheduler.max_steps=3");
    records_of(folder.file("parts"), spread, half);
    const auto parts = records_of(folder.file("parts"), spread, more);
    expect_equal_records(whole, parts, 0);
    EXPECT_EQ(adapter_bytes(folder.file("whole")), adapter_bytes(folder.file("parts")));
  }
}

/// An adapter's folder with q_proj cut to rank 4, the second layer's up_proj to 2, and another
/// alpha for v_proj.
std::string with_patterns(const std::string& adapter, const std::string& folder) {
  std::filesystem::copy(adapter, folder);
  const checkpoint::SafetensorsFile file(path_join(adapter, "adapter_model.safetensors"));
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& entry : file.tensors()) {
    at::Tensor value = file.read(entry.name);
    const bool is_q = entry.name.find("q_proj") != std::string::npos;
    const bool is_up = entry.name.find("layers.1.mlp.up_proj") != std::string::npos;
    const bool is_a = entry.name.find("lora_A") != std::string::npos;
    if (is_q || is_up) value = value.narrow(is_a ? 0 : 1, 0, is_q ? 4 : 2).contiguous();
    tensors.emplace_back(entry.name, value);
  }
  checkpoint::write_safetensors(path_join(folder, "adapter_model.safetensors"), tensors,
                                {{"format", "pt"}});
  const std::string path = path_join(folder, "adapter_config.json");
  Json config = Json::parse_file(path);
  config["rank_pattern"] = Json::parse(R"({"q_proj": 4, "layers\\.1\\.mlp\\.up_proj": 2})", path);
  config["alpha_pattern"] = Json::parse(R"({"v_proj": 8})", path);
  write_file_atomic(path, config.dump());
  return folder;
}

/// Loading by names alone would scale adapters anew, or leave some out.
TEST(LoraTest, ContinuesNoOtherAdapters) {
  const TemporaryDirectory folder;
  const std::string half = "--step_scheduler.max_steps=3";
  const auto refusal = [&](const std::string& name, const std::vector<std::string>& first,
                           const std::vector<std::string>& then) {
    std::vector<std::string> begun = first;
    begun.push_back(half);
    records_of(folder.file(name), {1, {}}, begun);
    const ProgramResult run = test::run_program(lora_run(folder.file(name), {1, {}}, then));
    EXPECT_EQ(run.status, 3) << name << run.err;
    EXPECT_NE(run.err.find("a run continues with the peft section that it began with"),
              std::string::npos)
        << run.err;
    return run.err;
  };
  EXPECT_NE(refusal("scale", {}, {"--peft.alpha=99"}).find("it is scaled by 4, the recipe's by"),
            std::string::npos);
  EXPECT_NE(refusal("fewer", {}, {"--peft.target_modules=*q_proj"})
                .find("not among the model's adapters (24): "),
            std::string::npos);
  EXPECT_NE(refusal("more", {"--peft.target_modules=*q_proj"}, {}).find("missing (24): "),
            std::string::npos);
  EXPECT_NE(refusal("dora", {"--peft.use_dora=true"}, {}).find("it is a DoRA adapter"),
            std::string::npos);
  records_of(folder.file("plain"), {1, {}});
  const std::string adapter =
      with_patterns(path_join(newest(folder.file("plain")), "model"), folder.file("adapter"));
  const std::string key = cat("--peft.adapter_name_or_path=", adapter);
  EXPECT_NE(refusal("patterns", {key}, {}).find("does not fit: "), std::string::npos);
}

TEST(LoraTest, BeginsWithAnAdapter) {
  const TemporaryDirectory folder;
  const auto first = records_of(folder.file("first"), {1, {}});
  const std::string adapter = path_join(newest(folder.file("first")), "model");
  const std::string key = cat("--peft.adapter_name_or_path=", adapter);
  const auto second = records_of(folder.file("second"), {1, {}}, {key});
  EXPECT_LT(second[0].at("loss").as_double(), first[0].at("loss").as_double());
  const auto sharded = records_of(folder.file("sharded"), test::sharded(2), {key});
  EXPECT_NEAR(sharded[0].at("loss").as_double(), second[0].at("loss").as_double(), 1e-5);
  const ProgramResult refused = test::run_program(
      lora_run(folder.file("third"), {1, {}}, {key, "--peft.dim=4", "--peft.alpha=16"}));
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("its rank (r) is 8, the recipe's (peft.dim) 4"), std::string::npos)
      << refused.err;
}

TEST(LoraTest, RanksOfTheirOwnDoNotDependOnTheSpreadAndAreSavedAgain) {
  const TemporaryDirectory folder;
  records_of(folder.file("first"), {1, {}});
  const std::string adapter =
      with_patterns(path_join(newest(folder.file("first")), "model"), folder.file("adapter"));
  std::vector<std::string> changes = kLargeBatches;
  changes.back() = cat("--peft.adapter_name_or_path=", adapter);  // in place of checkpoint.enabled
  const std::vector<Json> one = records_of(folder.file("one"), {1, {}}, changes);
  const std::vector<std::pair<const char*, test::Spread>> spreads = {
      {"fsdp2 on 2", test::sharded(2)},
      {"tensor parallel on 2", test::sharded(2, {"--distributed.tp_size=2"})},
      {"sequence parallel on 2",
       test::sharded(2, {"--distributed.tp_size=2", "--distributed.sequence_parallel=true"})},
      {"recomputed", {1, {"--distributed.activation_checkpointing=true"}}}};
  for (const auto& [name, spread] : spreads) {
    SCOPED_TRACE(name);
    expect_equal_records(one, records_of(folder.file(name), spread, changes), 1e-5);
  }
  const std::string saved = path_join(newest(folder.file("tensor parallel on 2")), "model");
  const Json config = Json::parse_file(path_join(saved, "adapter_config.json"));
  EXPECT_EQ(config.at("rank_pattern").dump(), R"({"q_proj": 4, "layers\\.1\\.mlp\\.up_proj": 2})");
  EXPECT_EQ(config.at("alpha_pattern").dump(), R"({"v_proj": 8})");
  const checkpoint::SafetensorsFile before(path_join(adapter, "adapter_model.safetensors"));
  const checkpoint::SafetensorsFile after(path_join(saved, "adapter_model.safetensors"));
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const auto& entry : before.tensors()) {
    EXPECT_EQ(after.find(entry.name)->shape, entry.shape) << entry.name;
    EXPECT_FALSE(at::equal(after.read(entry.name), before.read(entry.name))) << entry.name;
  }
}

/// A merged model computes what the base with its adapter computes.
TEST(LoraTest, AMergedModelHasTheAdaptersLoss) {
  const TemporaryDirectory folder;
  records_of(folder.file("run"), {1, {}});
  const std::string adapter = path_join(newest(folder.file("run")), "model");
  const std::string base = test::source_file("tests/recipes/data/tiny_llama");
  const std::string merged = folder.file("merged");
  const ProgramResult done =
      test::run_program({test::automodel_binary(), "merge-lora", base, adapter, merged});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.out, cat(merged, ": ", base, " with 14 weights changed by ", adapter, "\n"));
  const auto adapted =
      records_of(folder.file("adapted"), {1, {}}, {cat("--peft.adapter_name_or_path=", adapter)});
  const auto whole = records_of(folder.file("whole"), {1, {}},
                                {cat("--model.pretrained_model_name_or_path=", merged),
                                 "--dataset.tokenizer=configs/quickstart_tokenizer"});
  EXPECT_NEAR(adapted[0].at("loss").as_double(), whole[0].at("loss").as_double(), 2e-5);
  const ProgramResult again =
      test::run_program({test::automodel_binary(), "merge-lora", base, adapter, merged});
  EXPECT_EQ(again.status, 3);
  EXPECT_EQ(again.err, cat(merged, " is there already: name a folder that is not\n"));
  const std::string around = cat(merged, "_new/../merged");
  const ProgramResult by_a_detour =
      test::run_program({test::automodel_binary(), "merge-lora", base, adapter, around});
  EXPECT_EQ(by_a_detour.err, cat(around, " is there already: name a folder that is not\n"));
  EXPECT_FALSE(path_exists(cat(merged, "_new")));
}

TEST(LoraTest, AnAdapterOfAnotherBaseIsRefused) {
  const TemporaryDirectory folder;
  records_of(folder.file("run"), {1, {}});
  const std::string adapter = path_join(newest(folder.file("run")), "model");
  const std::string other = test::source_file("tests/golden/llama_default");
  const ProgramResult merge = test::run_program(
      {test::automodel_binary(), "merge-lora", other, adapter, folder.file("merged")});
  EXPECT_EQ(merge.status, 3);
  EXPECT_NE(merge.err.find(cat("the adapter in ", adapter, " is not one of ", other, ": ")),
            std::string::npos)
      << merge.err;
  EXPECT_FALSE(path_exists(folder.file("merged")));
}

TEST(LoraTest, TellsWhatIsTrained) {
  const TemporaryDirectory folder;
  const ProgramResult run = test::run_program(lora_run(folder.file("run"), {1, {}}));
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string all = run.out + run.err;
  EXPECT_NE(all.find("LoRA: rank 8, scale 4, trains 4480 of "), std::string::npos) << all;
  EXPECT_NE(all.find("  *_proj: 14 modules (2 q_proj, 2 k_proj, 2 v_proj, 2 o_proj, 2 gate_proj, "
                     "2 up_proj, 2 down_proj)"),
            std::string::npos)
      << all;
}

const std::vector<std::string> kSaved = {"--peft.modules_to_save=['embed_tokens', 'lm_head']"};

TEST(SavedModulesTest, LossesDoNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  std::vector<std::string> options = kLargeBatches;
  options.push_back(kSaved[0]);
  const std::vector<Json> one = records_of(folder.file("one"), {1, {}}, options);
  const std::vector<Json> plain = records_of(folder.file("plain"), {1, {}}, kLargeBatches);
  ASSERT_EQ(one.size(), 6u);
  EXPECT_LT(one.back().at("loss").as_double(), plain.back().at("loss").as_double());
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
    expect_equal_records(one, records_of(folder.file(name), spread, options), 2e-5);
  }
}

/// A run that stops and goes on has the adapter, modules included, of one that does not; so has a
/// run that begins with an adapter's folder, and merging gives the base the trained modules.
TEST(SavedModulesTest, AreInTheAdaptersFolder) {
  const TemporaryDirectory folder;
  records_of(folder.file("whole"), {1, {}}, kSaved);
  const auto adapter = checkpoint::SafetensorsFile(newest(folder.file("whole")) +
                                                   "/model/adapter_model.safetensors");
  const std::string prefix = "base_model.model.";
  const at::Tensor embedding = adapter.read(prefix + "model.embed_tokens.weight");
  const at::Tensor head = adapter.read(prefix + "lm_head.weight");
  std::vector<std::string> half = kSaved;
  half.emplace_back("--step_scheduler.max_steps=3");
  records_of(folder.file("stopped"), {1, {}}, half);
  records_of(folder.file("stopped"), {1, {}}, kSaved);
  EXPECT_EQ(adapter_bytes(folder.file("stopped")), adapter_bytes(folder.file("whole")));

  std::vector<std::string> still = kSaved;
  still.push_back(
      cat("--peft.adapter_name_or_path=", path_join(newest(folder.file("whole")), "model")));
  still.emplace_back("--optimizer.lr=0");
  still.emplace_back("--step_scheduler.max_steps=1");
  records_of(folder.file("begun"), {1, {}}, still);
  EXPECT_EQ(adapter_bytes(folder.file("begun")), adapter_bytes(folder.file("whole")));

  const std::string base = test::source_file("tests/recipes/data/tiny_llama");
  const ProgramResult merging =
      test::run_program({test::automodel_binary(), "merge-lora", base,
                         path_join(newest(folder.file("whole")), "model"), folder.file("merged")});
  ASSERT_EQ(merging.status, 0) << merging.err;
  const auto merged = checkpoint::HfFolder::open(folder.file("merged"));
  EXPECT_TRUE(at::equal(merged.file(0).read("model.embed_tokens.weight"), embedding));
  EXPECT_TRUE(at::equal(head, embedding));  // PEFT reads a tied head too
  EXPECT_FALSE(merged.find("lm_head.weight"));
  EXPECT_FALSE(at::equal(checkpoint::HfFolder::open(base).file(0).read("model.embed_tokens.weight"),
                         embedding));
}

}  // namespace
}  // namespace automodel::recipes
