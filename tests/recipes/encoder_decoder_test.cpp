#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;
using testing::HasSubstr;

/// `automodel COMMAND` of the smallest encoder-decoder.
ProgramResult translate(const char* command, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {test::automodel_binary(), command,
                                        test::source_file("recipes/smoke/tiny_t5.yaml")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return test::run_program(arguments);
}

Json::Array goldens() {
  return Json::parse_file(test::source_file("tests/recipes/data/encoder_decoder.json"))
      .at("records")
      .as_array();
}

struct Mesh {
  const char* name;
  std::vector<std::string> options;
  double tolerance = 2e-5;
};

class EncoderDecoderRunTest : public testing::TestWithParam<Mesh> {};

TEST_P(EncoderDecoderRunTest, LossesAreThoseOfPython) {
  const TemporaryDirectory folder;
  std::vector<std::string> options = GetParam().options;
  options.push_back(cat("--checkpoint.checkpoint_dir=", folder.file("run")));
  const ProgramResult run = translate("run", options);
  ASSERT_EQ(run.status, 0) << run.err;
  const std::vector<Json> records = read_records(folder.file("run/training.jsonl"));
  const std::vector<Json> validations = read_records(folder.file("run/validation.jsonl"));
  const Json::Array wanted = goldens();
  ASSERT_EQ(records.size(), wanted.size());
  const auto expect_close = [](const Json& found, const Json& expected, double tolerance) {
    EXPECT_NEAR(found.as_double(), expected.as_double(), tolerance * expected.as_double());
  };
  size_t num_validations = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(i);
    expect_close(records[i].at("loss"), wanted[i].at("loss"), GetParam().tolerance);
    expect_close(records[i].at("grad_norm"), wanted[i].at("grad_norm"), 2e-4);
    EXPECT_EQ(records[i].at("num_label_tokens"), wanted[i].at("num_label_tokens"));
    if (!wanted[i].contains("val_loss")) continue;
    expect_close(validations.at(num_validations++).at("val_loss"), wanted[i].at("val_loss"),
                 GetParam().tolerance);
  }
  EXPECT_EQ(validations.size(), num_validations);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, EncoderDecoderRunTest,
    testing::Values(
        Mesh{"one", {}, 2e-6}, Mesh{"ddp", {"--nproc-per-node=2"}},
        Mesh{"fsdp2", test::on(test::sharded(2), {})},
        Mesh{"recomputed",
             test::on(test::sharded(2, {"--distributed.activation_checkpointing=true"}), {})},
        Mesh{"megatron_fsdp", {"--nproc-per-node=2", "--distributed.strategy=megatron_fsdp"}}),
    [](const auto& info) { return info.param.name; });

/// Adapters on weights in 4 bits, and noise on what both stacks embed.
TEST(EncoderDecoderTest, TrainsInFourBitsAndWithNoise) {
  const TemporaryDirectory folder;
  const auto last_loss = [&](const char* name, const std::vector<std::string>& more) {
    std::vector<std::string> options = {
        cat("--checkpoint.checkpoint_dir=", folder.file(name)),
        "--peft._target_=nemo_automodel.components._peft.lora.PeftConfig", "--peft.dim=4",
        "--peft.target_modules=['*.q','*.v']"};
    options.insert(options.end(), more.begin(), more.end());
    const ProgramResult result = translate("run", options);
    EXPECT_EQ(result.status, 0) << result.err;
    // All but lm_head and wo, as bitsandbytes holds a T5.
    const bool is_held = std::string(name) == "held";
    EXPECT_EQ((result.out + result.err).find("28 matrices are held in 4 bits") != std::string::npos,
              is_held);
    return read_records(folder.file(cat(name, "/training.jsonl"))).back().at("loss").as_double();
  };
  const double plain = last_loss("plain", {});
  const double held = last_loss("held", {"--quantization.load_in_4bit=true"});
  const double noisy = last_loss("noisy", {"--neftune.noise_alpha=5"});
  EXPECT_NE(held, plain);
  EXPECT_NEAR(held, plain, 0.05 * plain);
  EXPECT_NE(noisy, plain);
  EXPECT_NEAR(noisy, plain, 0.05 * plain);
}

/// With dropout, in the model's layers and attention, and in adapters whose inputs are sources.
TEST(EncoderDecoderTest, AnExportIsWhatWasTrained) {
  const TemporaryDirectory folder;
  const ProgramResult run =
      translate("run", {cat("--checkpoint.checkpoint_dir=", folder.file("run"))});
  ASSERT_EQ(run.status, 0) << run.err;
  const ProgramResult parity = test::run_program({test::automodel_binary(), "parity", "--export",
                                                  folder.file("run/LATEST/model/consolidated")});
  EXPECT_EQ(parity.status, 0) << parity.err;
  EXPECT_THAT(parity.out, HasSubstr("logits: of 64 tokens, worst absolute difference 0.000e+00"));
}

TEST(EncoderDecoderTest, AdaptersAreContinuedToTheBit) {
  const TemporaryDirectory folder;
  const auto run = [&](const char* name, const std::vector<std::string>& more) {
    std::vector<std::string> options = {
        cat("--checkpoint.checkpoint_dir=", folder.file(name)),
        "--model.dropout_rate=0.1",
        "--peft._target_=nemo_automodel.components._peft.lora.PeftConfig",
        "--peft.dim=4",
        "--peft.dropout=0.1",
        "--peft.target_modules=['*.q','*.v','*.wi']"};
    options.insert(options.end(), more.begin(), more.end());
    const ProgramResult result = translate("run", options);
    EXPECT_EQ(result.status, 0) << result.err;
  };
  run("whole", {});
  run("parts", {"--step_scheduler.max_steps=3"});
  run("parts", {"--step_scheduler.max_steps=6"});
  const auto losses = [&](const char* name) {
    std::vector<double> all;
    for (const Json& record : read_records(folder.file(cat(name, "/training.jsonl")))) {
      all.push_back(record.at("loss").as_double());
    }
    return all;
  };
  EXPECT_EQ(losses("whole"), losses("parts"));
  EXPECT_EQ(losses("whole").size(), 6U);
  const Json adapter = Json::parse_file(folder.file("whole/LATEST/model/adapter_config.json"));
  EXPECT_EQ(adapter.at("task_type").as_string(), "SEQ_2_SEQ_LM");
}

TEST(EncoderDecoderTest, WhatDoesNotGoWithItIsNamed) {
  const auto refusal = [](const std::vector<std::string>& options) {
    const ProgramResult result = translate("check", options);
    EXPECT_NE(result.status, 0);
    return result.out + result.err;
  };
  EXPECT_THAT(refusal({"--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained"}),
              HasSubstr("a T5ForConditionalGeneration has an encoder and a decoder"));
  EXPECT_THAT(refusal({cat("--model.pretrained_model_name_or_path=",
                           test::source_file("tests/recipes/data/tiny_classifier"))}),
              HasSubstr("a LlamaForCausalLM has no encoder"));
  EXPECT_THAT(refusal({"--dataset._target_=make_squad_dataset"}),
              HasSubstr("this dataset has no sources for the model's encoder"));
  EXPECT_THAT(refusal({"--packed_sequence.packed_sequence_size=64"}),
              HasSubstr("there are no samples to pack"));
  EXPECT_THAT(
      refusal({"--distributed.strategy=fsdp2", "--distributed.tp_size=2", "--world-size=2"}),
      HasSubstr("an encoder and a decoder are replicated or sharded"));
  EXPECT_THAT(refusal({"--model.torch_dtype=float16"}), HasSubstr("in float16 are not in this"));
  EXPECT_THAT(
      refusal({"--distributed.strategy=fsdp2", "--distributed.mp_policy.param_dtype=float16"}),
      HasSubstr("in float16 are not in this"));
  EXPECT_THAT(refusal({"--peft._target_=nemo_automodel.components._peft.lora.PeftConfig",
                       "--peft.match_all_linear=true"}),
              HasSubstr("name other layers in target_modules, as ['*.q', '*.k', '*.v'"));
  EXPECT_THAT(refusal({"--recipe=BenchmarkingRecipeForNextTokenPrediction"}),
              HasSubstr("a model of an encoder and a decoder is trained by recipe"));
}

}  // namespace
}  // namespace automodel::recipes
