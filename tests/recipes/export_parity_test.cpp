#include <gtest/gtest.h>

#include <filesystem>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "recipes/runs.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::recipes {
namespace {

/// A checkpoint of two steps of the recipe on function calls, which names its own chat template.
class ExportParityTest : public testing::Test {
 protected:
  ExportParityTest() {
    run_ = test::run_program({test::automodel_binary(), "run",
                              "recipes/llm_finetune/function_calls_quickstart.yaml",
                              "--step_scheduler.max_steps=2", "--lr_scheduler.lr_warmup_steps=0",
                              "--validation_dataset=none", "--validation_dataloader=none",
                              cat("--checkpoint.checkpoint_dir=", folder_.path())});
    EXPECT_EQ(run_.status, 0) << run_.err;
  }

  std::string exported(const std::string& name = "") const {
    return path_join(folder_.file("LATEST/model/consolidated"), name);
  }

  test::ProgramResult parity() const {
    return test::run_program({test::automodel_binary(), "parity", "--export", exported()});
  }

  test::TemporaryDirectory folder_;
  test::ProgramResult run_;
};

TEST_F(ExportParityTest, AnExportIsWhatWasTrained) {
  const test::ProgramResult result = parity();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(
      result.out,
      "files: config.json, generation_config.json, tokenizer.json, tokenizer_config.json; ok\n"
      "weights: 38 tensors are the checkpoint's to the last bit; ok\n"
      "logits: of 64 tokens, worst absolute difference 0.000e+00; ok\n"
      "prompts: 3 conversations are written and tokenized as by the recipe's chat template; "
      "ok\n");
  // The recipe's template is the only one in the folder.
  EXPECT_NE(read_file(exported("chat_template.jinja")).find("call.function.name"),
            std::string::npos);
  EXPECT_FALSE(Json::parse_file(exported("tokenizer_config.json")).contains("chat_template"));
  // It ends turns with <|im_end|>, which is not the model's end token.
  EXPECT_EQ(Json::parse_file(exported("generation_config.json")).at("eos_token_id").dump(),
            "[0, 3]");
  EXPECT_NE((run_.out + run_.err).find("eos_token_id gets 3 (<|im_end|>)"), std::string::npos);
}

/// transformers reads generation_config.json alone where there is one.
TEST_F(ExportParityTest, AnEndThatConfigAloneNamesIsAdded) {
  const std::string base = folder_.file("base");
  std::filesystem::copy(exported(), base);
  Json config = Json::parse_file(path_join(base, "config.json"));
  config["eos_token_id"] = Json(int64_t{3});
  write_file_atomic(path_join(base, "config.json"), config.dump());
  const auto end_of_export = [&](const char* generation, const std::string& name) {
    write_file_atomic(path_join(base, "generation_config.json"), generation);
    const test::ProgramResult run = test::run_program(
        {test::automodel_binary(), "run", "recipes/llm_finetune/function_calls_quickstart.yaml",
         "--step_scheduler.max_steps=1", "--lr_scheduler.lr_warmup_steps=0",
         "--validation_dataset=none", "--validation_dataloader=none", "--model.config=none",
         "--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
         cat("--model.pretrained_model_name_or_path=", base),
         cat("--checkpoint.checkpoint_dir=", folder_.file(name))});
    EXPECT_EQ(run.status, 0) << run.err;
    return Json::parse_file(
               path_join(folder_.file(name), "LATEST/model/consolidated/generation_config.json"))
        .at("eos_token_id")
        .dump();
  };
  EXPECT_EQ(end_of_export(R"({"eos_token_id": 2})", "one"), "[2, 3]");
  EXPECT_EQ(end_of_export(R"({"eos_token_id": [0, 3]})", "two"), "[0, 3]");
}

/// What add_eos_token writes behind answers ends them, whatever the model's configuration says.
TEST(ExportedEndsTest, AnEndThatTheRecipeAddsIsAmongThem) {
  const test::TemporaryDirectory folder;
  const std::string base = folder.file("base");
  std::filesystem::copy(test::source_file("tests/recipes/data/tiny_llama"), base);
  write_file_atomic(path_join(base, "generation_config.json"), R"({"eos_token_id": 5})");
  const auto ends = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> options = {cat("--model.pretrained_model_name_or_path=", base),
                                        "--step_scheduler.max_steps=1"};
    options.insert(options.end(), more.begin(), more.end());
    const test::ProgramResult run = test::run_program(test::smoke_run(folder.file(name), options));
    EXPECT_EQ(run.status, 0) << run.err;
    return Json::parse_file(
               path_join(folder.file(name), "LATEST/model/consolidated/generation_config.json"))
        .at("eos_token_id")
        .dump();
  };
  EXPECT_EQ(ends("plain", {}), "5");
  EXPECT_EQ(ends("ended", {"--dataset.tokenizer.add_eos_token=true"}), "[5, 0]");
}

TEST_F(ExportParityTest, WhatIsDifferentIsNamed) {
  const std::string weights = exported("model-00001-of-00001.safetensors");
  std::string bytes = read_file(weights);
  bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 0x10);
  write_file_atomic(weights, bytes);
  write_file_atomic(exported("chat_template.jinja"),
                    "{% for m in messages %}{{ m.content }}{% endfor %}");
  const test::ProgramResult result = parity();
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.out.find("weights: 37 tensors are the checkpoint's to the last bit, not "),
            std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("prompts: 0 conversations are written and tokenized as by the recipe's "
                            "chat template, 3 are not; DIFFERENT"),
            std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("; DIFFERENT\nprompts"), std::string::npos) << "logits: " << result.out;
}

TEST_F(ExportParityTest, AFolderOutsideOfACheckpointIsRefused) {
  const test::TemporaryDirectory elsewhere;
  for (const std::string& name : list_directory(exported())) {
    elsewhere.write(name, read_file(exported(name)));
  }
  const test::ProgramResult result =
      test::run_program({test::automodel_binary(), "parity", "--export", elsewhere.path()});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err, cat(elsewhere.path(),
                            " does not lie in a checkpoint (CHECKPOINT/model/consolidated), whose "
                            "weights and recipe it is compared with\n"));
}

}  // namespace
}  // namespace automodel::recipes
