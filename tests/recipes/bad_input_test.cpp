#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::source_file;
using test::TemporaryDirectory;
using testing::HasSubstr;

/// A run of the smoke recipe, with the time taken off its error line.
class BadInputTest : public testing::Test {
 protected:
  /// As on a machine without a GPU.
  ProgramResult run(std::vector<std::string> more) {
    more.emplace_back("--checkpoint.enabled=false");
    // Else a warning comes first.
    more.insert(more.begin(), "--dataset.tokenizer.add_eos_token=true");
    ProgramResult result =
        test::run_program(test::smoke_run(folder_.file("run"), more), {"CUDA_VISIBLE_DEVICES="});
    const size_t mark = result.err.find("| automodel | ");
    if (mark != std::string::npos) result.err = result.err.substr(mark + 14);
    return result;
  }

  ProgramResult run_on_rows(const std::string& rows) {
    return run({cat("--dataset.path_or_dataset_id=", folder_.write("rows.jsonl", rows))});
  }

  /// The tiny Llama with a change of one of its files.
  ProgramResult run_on_model(const std::string& file, const std::string& bytes) {
    const std::string copy = folder_.file("model");
    std::filesystem::copy(source_file("tests/recipes/data/tiny_llama"), copy);
    write_file_atomic(path_join(copy, file), bytes);
    return run({cat("--model.pretrained_model_name_or_path=", copy)});
  }

  static std::string model_file(const std::string& file) {
    return read_file(source_file(cat("tests/recipes/data/tiny_llama/", file)));
  }

  TemporaryDirectory folder_;
};

TEST_F(BadInputTest, ALineThatIsNotJsonIsNamed) {
  const ProgramResult result = run_on_rows("{\"question\": \"a\", \"answer\": \"b\"}\nhello\n");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("rows.jsonl:2: not valid JSON at byte 1"));
}

/// The batches of a step are taken before the step before it is trained. What was trained is saved.
TEST_F(BadInputTest, ARowEndsTheRunWhenItIsDue) {
  const std::string row = "{\"question\": \"what is it\", \"answer\": \"a long answer\"}\n";
  const std::string rows = cat(row, row, row, row, "hello\n", row, row, row);
  for (const int64_t num_steps : {2, 3}) {
    for (const int num_ranks : {1, 2}) {
      const std::string place = folder_.file(cat("run", num_steps, num_ranks));
      const ProgramResult result = test::run_program(test::smoke_run(
          place,
          {cat("--dataset.path_or_dataset_id=", folder_.write("rows.jsonl", rows)),
           "--dataloader.shuffle=false", "--step_scheduler.local_batch_size=1",
           "--step_scheduler.global_batch_size=2", "--step_scheduler.ckpt_every_steps=100",
           cat("--nproc-per-node=", num_ranks), cat("--step_scheduler.max_steps=", num_steps)}));
      EXPECT_EQ(result.status, num_steps == 2 ? 0 : 3) << result.err;
      EXPECT_TRUE(path_exists(path_join(place, "epoch_0_step_1"))) << result.err;
      EXPECT_TRUE(path_exists(path_join(place, "LATEST"))) << result.err;
      if (num_steps == 3) {
        EXPECT_THAT(result.err, HasSubstr("rows.jsonl:5: not valid JSON"));
      }
    }
  }
}

TEST_F(BadInputTest, AnEmptyDatasetIsRefused) {
  const ProgramResult result = run_on_rows("");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("rows.jsonl is empty [dataset.path_or_dataset_id]"));
}

TEST_F(BadInputTest, RowsWithoutALabelTokenAreRefused) {
  const std::string rows =
      folder_.write("rows.jsonl", "{\"question\": \"what?\", \"answer\": \"\"}\n");
  const ProgramResult result =
      run({cat("--dataset.path_or_dataset_id=", rows), "--dataset.tokenizer.add_eos_token=false"});
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("has a token that counts in the loss"));
}

TEST_F(BadInputTest, TruncatedWeightsAreNamed) {
  const std::string bytes = model_file("model.safetensors");
  const ProgramResult result = run_on_model("model.safetensors", bytes.substr(0, 50000));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("model.safetensors: tensor 'model.embed_tokens.weight' ends at "
                                    "byte 131072 of the data, but only"));
}

TEST_F(BadInputTest, WeightsOfAnotherShapeAreListed) {
  const std::string config = replace_all(
      replace_all(model_file("config.json"), "\"hidden_size\": 16", "\"hidden_size\": 32"),
      "\"head_dim\": 4", "\"head_dim\": 8");
  const ProgramResult result = run_on_model("config.json", config);
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("do not fit the config:"));
  EXPECT_THAT(result.err, HasSubstr("model.embed_tokens.weight"));
  EXPECT_THAT(result.err, HasSubstr("20"));
}

TEST_F(BadInputTest, TokensBeyondTheVocabularyAreRefused) {
  const ProgramResult result =
      run({"--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config",
           "--model.pretrained_model_name_or_path=none",
           "--model.config.pretrained_model_name_or_path=configs/quickstart_llama",
           "--model.config._target_=transformers.AutoConfig.from_pretrained",
           "--model.config.vocab_size=1000"});
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("vocab"));
}

TEST_F(BadInputTest, ANonFiniteLossStopsTheRunBeforeAnUpdate) {
  const ProgramResult result = run({"--optimizer.lr=1e38"});
  EXPECT_EQ(result.status, 5);
  EXPECT_THAT(result.err,
              testing::MatchesRegex(
                  "step 1: the loss is nan .non-finite on rank 0.; nothing was updated. Lower the "
                  "learning rate, check the data, or train in float32. Parameters are not finite "
                  "in model.embed_tokens.weight, .* more: the last update made them so, or .*\n"));
}

TEST_F(BadInputTest, WeightsThatAreNotFiniteAreNamedWhereTheyMakeTheLossSo) {
  const std::string bytes = model_file("model.safetensors");
  const std::string nan(4, '\xff');  // in the last tensor of the file
  const ProgramResult result =
      run_on_model("model.safetensors", bytes.substr(0, bytes.size() - nan.size()) + nan);
  EXPECT_EQ(result.status, 5);
  EXPECT_EQ(result.err,
            "step 0: the loss is nan (non-finite on rank 0); nothing was updated. Lower the "
            "learning rate, check the data, or train in float32. Parameters are not finite in "
            "model.norm.weight: the last update made them so, or they were when the run began\n");
}

TEST_F(BadInputTest, CheckForNanInGradStopsARunThatGoesOnOtherwise) {
  const std::vector<std::string> arguments = {"--optimizer.lr=1e38", "--stop_on_non_finite=false",
                                              "--distributed.strategy=megatron_fsdp"};
  const ProgramResult checked = run(arguments);
  EXPECT_EQ(checked.status, 5);
  EXPECT_THAT(checked.err, testing::StartsWith("step 1: the gradient norm is nan (not finite in "));
  EXPECT_THAT(checked.err, HasSubstr(" more) while the loss is nan; nothing was updated."));
  std::vector<std::string> unchecked = arguments;
  unchecked.push_back("--distributed.check_for_nan_in_grad=false");
  EXPECT_EQ(run(unchecked).status, 0);
}

/// The tenth of max_steps would be longer than the decay, but the epoch ends long before.
TEST_F(BadInputTest, ADefaultWarmUpIsATenthOfTheStepsThatEpochsLeave) {
  const ProgramResult result =
      run({"--step_scheduler.max_steps=2000", "--step_scheduler.num_epochs=1",
           "--lr_scheduler.lr_decay_steps=100"});
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(BadInputTest, Tf32IsForGpus) {
  const ProgramResult unknown = run({"--float32_matmul_precision=tf32"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("expected one of ieee, highest, high; found"));
  const ProgramResult high = run({"--float32_matmul_precision=high"});
  EXPECT_EQ(high.status, 0);
  EXPECT_THAT(high.out, HasSubstr("float32_matmul_precision high is for GPUs"));
}

TEST_F(BadInputTest, CudaWhereThereIsNoneIsSaid) {
  const ProgramResult result = run({"--device=cuda"});
  EXPECT_EQ(result.status, 6);
  EXPECT_THAT(result.err, HasSubstr("--device cuda"));
}

TEST_F(BadInputTest, NcclWithoutAGpuTrainsOnTheCpuAfterOneWarning) {
  for (const char* backend : {"nccl", "cpu:gloo,cuda:nccl"}) {
    const ProgramResult result =
        run({cat("--dist_env.backend=", backend), "--step_scheduler.max_steps=1"});
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(
        result.err,
        testing::StartsWith("dist_env.backend nccl needs a GPU: training on the CPU with gloo"));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
  }
}

}  // namespace
}  // namespace automodel::recipes
