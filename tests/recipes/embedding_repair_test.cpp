// Runs of the program on a base whose embedding has rows that were never trained.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "checkpoint/hf_folder.h"
#include "checkpoint/safetensors.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::TemporaryDirectory;

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

Tensors tensors_of(const std::string& folder) {
  const checkpoint::SafetensorsFile file(path_join(folder, "model.safetensors"));
  Tensors tensors;
  for (const auto& entry : file.tensors()) tensors.emplace_back(entry.name, file.read(entry.name));
  return tensors;
}

at::Tensor tensor_of(const Tensors& tensors, const std::string& name) {
  for (const auto& [known, tensor] : tensors) {
    if (known == name) return tensor;
  }
  throw std::runtime_error("no tensor " + name);
}

/// A base with rows 5 (zero), 9 (short) and 11 (not finite) of its embedding, and those of `head`.
std::string damaged_base(const std::string& folder, const std::vector<int64_t>& head = {}) {
  const std::string whole = test::source_file("tests/golden/llama_default");
  std::filesystem::create_directory(folder);
  std::filesystem::copy(path_join(whole, "config.json"), folder);
  const Tensors tensors = tensors_of(whole);
  at::Tensor embedding = tensor_of(tensors, kEmbedding);
  embedding[5].zero_();
  embedding[9].mul_(1e-6);
  embedding[11][3] = std::numeric_limits<float>::infinity();
  for (const int64_t row : head) tensor_of(tensors, kHead)[row].zero_();
  checkpoint::write_safetensors(path_join(folder, "model.safetensors"), tensors,
                                {{"format", "pt"}});
  return folder;
}

/// One step at a learning rate of zero, exported.
ProgramResult run(const std::string& base, const std::string& checkpoints, int num_ranks,
                  const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      test::automodel_binary(),
      "run",
      test::source_file("recipes/smoke/mock_pretrain.yaml"),
      "--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
      "--model.config=None",
      cat("--model.pretrained_model_name_or_path=", base),
      "--dataset.vocab_size=64",
      "--dataset.seq_len=16",
      "--step_scheduler.max_steps=1",
      "--optimizer.lr=0",
      "--optimizer.weight_decay=0",
      "--checkpoint.enabled=true",
      "--checkpoint.save_consolidated=every",
      cat("--checkpoint.checkpoint_dir=", checkpoints)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return test::run_program(test::on({num_ranks, {}}, arguments));
}

TEST(EmbeddingRepairTest, RowsThatWereNeverTrainedGetTheHeadsDirection) {
  const TemporaryDirectory folder;
  const std::string base = damaged_base(folder.file("base"));
  const Tensors before = tensors_of(base);
  at::Tensor wanted = tensor_of(before, kEmbedding).clone();
  const at::Tensor head = tensor_of(before, kHead);
  at::Tensor is_healthy = at::ones({wanted.size(0)}, at::kBool);
  for (const int64_t row : {5, 9, 11}) is_healthy[row] = false;
  const at::Tensor squares = wanted.to(at::kDouble).square().sum(1).masked_select(is_healthy);
  const double length = std::sqrt(squares.mean().item<double>());
  for (const int64_t row : {5, 9, 11}) {
    wanted[row].copy_(head[row] * (length / head[row].norm().item<double>()));
  }
  for (const int num_ranks : {1, 2}) {
    const std::string place = folder.file(cat("on ", num_ranks));
    const ProgramResult result =
        run(base, place, num_ranks, {"--embedding_row_repair.min_norm=1e-4"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE((result.out + result.err)
                  .find("repaired 3 rows of model.embed_tokens.weight by "
                        "lm_head.weight: 5, 9, 11"),
              std::string::npos)
        << result.out << result.err;
    const checkpoint::SafetensorsFile file(
        path_join(place, "LATEST/model/consolidated/model-00001-of-00001.safetensors"));
    EXPECT_TRUE(at::allclose(file.read(kEmbedding), wanted, 1e-6, 0));
    EXPECT_TRUE(at::equal(file.read(kHead), head));
  }
}

TEST(EmbeddingRepairTest, WhatARunDoesNotKeepOrReadIsToldOf) {
  const TemporaryDirectory folder;
  const std::string base = damaged_base(folder.file("base"));
  const ProgramResult drawn =
      run(base, folder.file("drawn"), 1,
          {"--embedding_row_repair.min_norm=1e-4", "--model.load_base_model=false"});
  EXPECT_EQ(drawn.status, 0) << drawn.err;
  EXPECT_NE(drawn.err.find("'embedding_row_repair' has no effect: the weights are drawn"),
            std::string::npos)
      << drawn.err;
  const ProgramResult adapted =
      run(base, folder.file("adapted"), 1,
          {"--embedding_row_repair.min_norm=1e-4", "--peft.target_modules=*_proj"});
  EXPECT_EQ(adapted.status, 0) << adapted.err;
  EXPECT_NE(adapted.err.find("does not hold the repaired rows"), std::string::npos) << adapted.err;
}

TEST(EmbeddingRepairTest, WhatCannotBeRepairedIsRefused) {
  const TemporaryDirectory folder;
  const std::string base = damaged_base(folder.file("base"));
  const ProgramResult many =
      run(base, folder.file("many"), 1,
          {"--embedding_row_repair.min_norm=1e-4", "--embedding_row_repair.max_rows=2"});
  EXPECT_EQ(many.status, 3) << many.err;
  EXPECT_NE(many.err.find("3 rows of model.embed_tokens.weight"), std::string::npos) << many.err;
  const std::string both = damaged_base(folder.file("both"), {9});
  const ProgramResult unusable =
      run(both, folder.file("unusable"), 1, {"--embedding_row_repair.min_norm=1e-4"});
  EXPECT_EQ(unusable.status, 3) << unusable.err;
  EXPECT_NE(unusable.err.find("rows 9 of lm_head.weight"), std::string::npos) << unusable.err;
}

}  // namespace
}  // namespace automodel::recipes
