#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/hf_folder.h"
#include "recipes/folders.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::read_records;
using test::Spread;
using test::TemporaryDirectory;

constexpr const char* kGoldens[] = {"qwen3_fp8", "deepseek_v3_fp8", "mistral_fp8_static",
                                    "llama_compressed_channel", "gpt_oss_mxfp4"};

std::string golden(const std::string& name) {
  return test::source_file("tests/golden/quantized/" + name);
}

/// A folder of the floats that a golden folder's weights stand for, in bfloat16.
std::string plain_folder(const std::string& name, const std::string& path) {
  create_directories(path);
  std::filesystem::copy_file(golden(name) + "/dequantized_bfloat16.safetensors",
                             path + "/model.safetensors");
  Json config = Json::parse_file(golden(name) + "/config.json");
  config.erase("quantization_config");
  write_file_atomic(path + "/config.json", config.dump(2));
  return path;
}

/// Two steps of a model in bfloat16 on drawn tokens, exported to `out`.
test::ProgramResult train(const std::string& model, const std::string& out,
                          const Spread& spread = {}) {
  return test::run_program(test::on(
      spread,
      test::smoke_run(out,
                      {"--model.pretrained_model_name_or_path=" + model, "--model.torch_dtype=auto",
                       "--step_scheduler.max_steps=2", "--step_scheduler.ckpt_every_steps=2",
                       "--dataset._target_=MockIterableDataset", "--dataset.vocab_size=128",
                       "--dataset.seq_len=16", "--dataset.num_samples=64", "--dataset.batch_size=2",
                       "--dataset.column_mapping=none", "--dataset.path_or_dataset_id=none",
                       "--dataset.tokenizer=none"})));
}

std::string exported(const std::string& out) {
  return out + "/epoch_0_step_1/model/consolidated";
}

TEST(QuantizedBaseTest, ARunEqualsOneOfTheFloatsToTheLastBit) {
  const TemporaryDirectory folder;
  for (const char* name : kGoldens) {
    const std::string plain = plain_folder(name, folder.file(cat(name, "_plain")));
    const std::string of_quantized = folder.file(cat(name, "_a"));
    const std::string of_plain = folder.file(cat(name, "_b"));
    const auto result = train(golden(name), of_quantized);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out + result.err, testing::HasSubstr(" dequantized from "));
    ASSERT_EQ(train(plain, of_plain).status, 0);
    EXPECT_TRUE(test::bytes_of(exported(of_quantized)) == test::bytes_of(exported(of_plain)))
        << name;
    const Json config = Json::parse_file(exported(of_quantized) + "/config.json");
    EXPECT_FALSE(config.contains("quantization_config"));
    EXPECT_EQ(config.at("dtype").as_string(), "bfloat16");
  }
}

TEST(QuantizedBaseTest, RanksReadTheSameWeights) {
  const TemporaryDirectory folder;
  const auto losses = [&](const std::string& model, const std::string& out, const Spread& spread) {
    const auto result = train(model, folder.file(out), spread);
    EXPECT_EQ(result.status, 0) << result.err;
    return read_records(folder.file(out + "/training.jsonl"));
  };
  const Spread experts = test::sharded(2, {"--distributed.ep_size=2"});
  const Spread tensors = test::sharded(2, {"--distributed.tp_size=2"});
  for (const auto& [name, spread] :
       {std::pair("deepseek_v3_fp8", test::sharded(2)), std::pair("deepseek_v3_fp8", experts),
        std::pair("gpt_oss_mxfp4", test::sharded(2)), std::pair("gpt_oss_mxfp4", experts),
        std::pair("qwen3_fp8", tensors), std::pair("llama_compressed_channel", tensors)}) {
    const std::string place = cat(name, join(spread.options, "").size());
    const std::string plain = plain_folder(name, folder.file(place + "_plain"));
    const auto wanted = losses(plain, place + "_a", spread);
    const auto found = losses(golden(name), place + "_b", spread);
    ASSERT_EQ(wanted.size(), 2u);
    test::expect_equal_records(wanted, found, 0);
  }
}

TEST(QuantizedBaseTest, AdaptersMergeIntoTheFloats) {
  const TemporaryDirectory folder;
  const std::string plain = plain_folder("qwen3_fp8", folder.file("plain"));
  const auto merge = [&](const std::string& base, const std::string& name) {
    const Spread lora{1,
                      {"--peft._target_=nemo_automodel.components._peft.lora.PeftConfig",
                       "--peft.target_modules=*_proj", "--peft.use_dora=true"}};
    const auto result = train(base, folder.file(name), lora);
    EXPECT_EQ(result.status, 0) << result.err;
    const std::string out = folder.file(name + "_merged");
    const auto merged = test::run_program({test::automodel_binary(), "merge-lora", base,
                                           folder.file(name + "/epoch_0_step_1/model"), out});
    EXPECT_EQ(merged.status, 0) << merged.err;
    return test::bytes_of(out);
  };
  EXPECT_TRUE(merge(golden("qwen3_fp8"), "a") == merge(plain, "b"));
}

TEST(QuantizedBaseTest, OtherMethodsAreRefusedBeforeTheRun) {
  const TemporaryDirectory folder;
  const std::string plain = plain_folder("qwen3_fp8", folder.file("plain"));
  Json config = Json::parse_file(plain + "/config.json");
  config["quantization_config"]["quant_method"] = Json("gptq");
  write_file_atomic(plain + "/config.json", config.dump(2));
  const auto result = train(plain, folder.file("out"));
  EXPECT_EQ(result.status, 6);
  EXPECT_THAT(result.err,
              testing::HasSubstr("config.json: quantization_config: quant_method 'gptq' is not in "
                                 "this version; weights are read in fp8, mxfp4 and "
                                 "compressed-tensors (format float-quantized)"));
}

}  // namespace
}  // namespace automodel::recipes
