// Runs of the program that train adapters on weights in 4 bits.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/hf_folder.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::expect_equal_records;
using test::ProgramResult;
using test::read_records;
using test::Spread;
using test::TemporaryDirectory;
using testing::HasSubstr;

const std::vector<std::string> kFourBits = {
    "--peft._target_=nemo_automodel.components._peft.lora.PeftConfig", "--optimizer.lr=1e-2",
    "--quantization.load_in_4bit=true", "--quantization.bnb_4bit_compute_dtype=float32"};

std::vector<std::string> with(std::vector<std::string> options,
                              const std::vector<std::string>& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

ProgramResult run(const std::string& folder, const Spread& spread,
                  const std::vector<std::string>& more = {}) {
  return test::run_program(test::on(spread, test::smoke_run(folder, with(kFourBits, more))));
}

std::vector<Json> records_of(const std::string& folder, const Spread& spread,
                             const std::vector<std::string>& more = {}) {
  const ProgramResult result = run(folder, spread, more);
  EXPECT_EQ(result.status, 0) << result.err;
  return read_records(path_join(folder, "training.jsonl"));
}

std::string adapter_of(const std::string& folder) {
  return path_join(std::filesystem::canonical(path_join(folder, "LATEST")).string(), "model");
}

const std::vector<std::string> kLargeBatches = {
    "--dataset.path_or_dataset_id=recipes/data/gsm8k_train.jsonl",
    "--step_scheduler.global_batch_size=16", "--step_scheduler.local_batch_size=2",
    "--checkpoint.enabled=false"};

TEST(QloraTest, LossesDoNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = records_of(folder.file("one"), {1, {}}, kLargeBatches);
  ASSERT_EQ(one.size(), 6u);
  EXPECT_LT(one.back().at("loss").as_double(), one.front().at("loss").as_double());
  const std::vector<std::pair<const char*, Spread>> spreads = {
      {"ddp on 2", {2, {}}},
      {"fsdp2 on 2", test::sharded(2)},
      {"fsdp2 on 4", test::sharded(4)},
      {"fsdp2 on 1", test::sharded(1)},
      {"hsdp on 2 x 2", test::sharded(4, {"--distributed.dp_replicate_size=2"})},
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

/// A cast of the bytes would change every weight.
TEST(QloraTest, ShardedBytesAreNotCast) {
  const TemporaryDirectory folder;
  const std::vector<std::string> narrow = {"--distributed.strategy=fsdp2",
                                           "--distributed.mp_policy.param_dtype=bfloat16",
                                           "--distributed.mp_policy.reduce_dtype=float32"};
  const auto two = records_of(folder.file("two"), {2, narrow}, kLargeBatches);
  const auto one = records_of(folder.file("one"), {1, {}}, kLargeBatches);
  // bfloat16 activations and adapters: a loss of 7.6 within a few of its roundings of 2^-9.
  EXPECT_NEAR(two[0].at("loss").as_double(), one[0].at("loss").as_double(), 0.02);
}

TEST(QloraTest, TheFirstLossIsNearTheBaseModels) {
  const TemporaryDirectory folder;
  const auto quantized = records_of(folder.file("a"), {1, {}});
  const auto finer =
      records_of(folder.file("b"), {1, {}}, {"--quantization.bnb_4bit_quant_type=fp4"});
  const ProgramResult plain =
      test::run_program(test::smoke_run(folder.file("c"), {kFourBits[0], kFourBits[1]}));
  ASSERT_EQ(plain.status, 0);
  const double base = read_records(folder.file("c/training.jsonl"))[0].at("loss").as_double();
  for (const auto& records : {quantized, finer}) {
    EXPECT_NE(records[0].at("loss").as_double(), base);
    EXPECT_NEAR(records[0].at("loss").as_double(), base, 0.005);
  }
  EXPECT_NE(quantized[0].at("loss").as_double(), finer[0].at("loss").as_double());
}

TEST(QloraTest, ARunIsContinuedAndItsAdapterMergedIntoTheFloats) {
  const TemporaryDirectory folder;
  const auto whole = records_of(folder.file("whole"), {1, {}});
  records_of(folder.file("parts"), {1, {}}, {"--step_scheduler.max_steps=3"});
  expect_equal_records(whole, records_of(folder.file("parts"), {1, {}}), 0);
  const std::string adapter = adapter_of(folder.file("parts"));
  EXPECT_EQ(read_file(path_join(adapter_of(folder.file("whole")), "adapter_model.safetensors")),
            read_file(path_join(adapter, "adapter_model.safetensors")));
  for (const std::string& name : list_directory(adapter)) {
    if (!name.ends_with(".safetensors")) continue;
    const checkpoint::SafetensorsFile file(path_join(adapter, name));
    for (const auto& entry : file.tensors()) EXPECT_THAT(entry.name, HasSubstr("lora_"));
  }
  const auto merged = test::run_program({test::automodel_binary(), "merge-lora",
                                         test::source_file("tests/recipes/data/tiny_llama"),
                                         adapter, folder.file("merged")});
  EXPECT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(checkpoint::HfFolder::open(folder.file("merged")).storage_dtype(), at::kFloat);
}

TEST(QloraTest, WeightsThatAreDrawnDoNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  // Steps of 1e-2 would make roundings of drawn weights grow tenfold a step.
  const std::vector<std::string> drawn =
      with(kLargeBatches,
           {"--optimizer.lr=1e-3",
            "--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config",
            "--model.config=configs/tiny/llama", "--model.pretrained_model_name_or_path="});
  const auto one = records_of(folder.file("one"), {1, {}}, drawn);
  expect_equal_records(one, records_of(folder.file("two"), test::sharded(2), drawn), 1e-5);
}

TEST(QloraTest, QuantizedWeightsAreQuantizedAnewFromTheFloatsTheyStandFor) {
  const TemporaryDirectory folder;
  const auto result =
      run(folder.file("run"), {1, {}},
          {"--model.pretrained_model_name_or_path=" +
               test::source_file("tests/golden/quantized/qwen3_fp8"),
           "--model.torch_dtype=auto", "--dataset._target_=MockIterableDataset",
           "--dataset.vocab_size=128", "--dataset.seq_len=16", "--dataset.num_samples=64",
           "--dataset.batch_size=2", "--dataset.column_mapping=none",
           "--dataset.path_or_dataset_id=none", "--dataset.tokenizer=none"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out + result.err, HasSubstr("14 matrices are held in 4 bits"));
}

/// Bytes that a plan counts for frozen parameters of blocks.
int64_t frozen_bytes(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      test::automodel_binary(),
      "plan",
      test::source_file("recipes/smoke/tiny_llama_qlora.yaml"),
      "--json",
      "--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config",
      "--model.config=configs/tiny/llama",
      "--model.pretrained_model_name_or_path="};
  const auto result = test::run_program(with(arguments, more));
  EXPECT_EQ(result.status, 0) << result.err;
  const Json plan = Json::parse(result.out, "plan");
  int64_t bytes = 0;
  for (const Json& unit : plan.at("units").as_array()) {
    const bool is_of_block = unit.at("first").as_string().starts_with("model.layers.");
    if (!is_of_block || unit.at("is_trained").as_bool()) continue;
    bytes += unit.at("count").as_int() * unit.at("parameters").as_int();
  }
  return bytes;
}

/// Two layers of q, k, v and o, gate, up and down, and of two norms.
TEST(QloraTest, ARunIsNotContinuedOnOtherWeights) {
  const TemporaryDirectory folder;
  ASSERT_EQ(run(folder.path(), {1, {}}, {"--step_scheduler.max_steps=2"}).status, 0);
  const ProgramResult other =
      run(folder.path(), {1, {}}, {"--quantization.bnb_4bit_quant_type=fp4"});
  EXPECT_EQ(other.status, 3) << other.err;
  EXPECT_THAT(other.err, HasSubstr("quantization is \"nf4, double\" in the checkpoint"));
}

TEST(QloraTest, TransposedWeightsAreRefused) {
  const TemporaryDirectory folder;
  const ProgramResult result =
      run(folder.path(), {1, {}},
          {cat("--model.pretrained_model_name_or_path=", test::source_file("tests/golden/gpt2")),
           "--peft.match_all_linear=true"});
  EXPECT_EQ(result.status, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr("stored transposed"));
}

TEST(QloraTest, ThePlanCountsBytes) {
  constexpr int64_t kNorms = int64_t{2} * 2 * 64;
  constexpr int64_t kWeights = int64_t{2} * (64 * (64 + 32 + 32 + 64) + 3 * 64 * 160);
  const int64_t floats = frozen_bytes({"--quantization.load_in_4bit=false"});
  EXPECT_EQ(floats, 2 * (kWeights + kNorms));
  const int64_t bytes = frozen_bytes({});
  EXPECT_GT(bytes, kWeights * 33 / 64 + 2 * kNorms);  // 4 bits, and 8 for 64 elements
  EXPECT_LT(bytes, kWeights * 35 / 64 + 2 * kNorms);  // and where matrices begin
}

}  // namespace
}  // namespace automodel::recipes
