// Modules that are trained whole beside adapters, and files that a run reads whenever it goes on.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "checkpoint/safetensors.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::read_records;
using test::TemporaryDirectory;

/// The last stage has the head, the first the embedding: they are no one matrix for that.
TEST(SavedModulesTest, APipelinesFolderIsThatOfOneRank) {
  const TemporaryDirectory folder;
  const auto run = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), {"--checkpoint.enabled=true", "--step_scheduler.max_steps=3",
                             "--peft._target_=PeftConfig", "--peft.target_modules=*.o_proj",
                             "--peft.modules_to_save=['embed_tokens', 'lm_head']",
                             cat("--checkpoint.checkpoint_dir=", folder.file(name))});
    const test::ProgramResult result = test::mock_on_golden("run", "llama_default", more);
    EXPECT_EQ(result.status, 0) << result.err;
    const std::string newest = std::filesystem::canonical(path_join(folder.file(name), "LATEST"));
    return path_join(newest, "model");
  };
  const std::vector<std::string> stages = {"--distributed.pp_size=2",
                                           "--distributed.pipeline.pp_schedule=1f1b",
                                           "--distributed.pipeline.pp_microbatch_size=1",
                                           "--distributed.mp_policy.param_dtype=float32",
                                           "--distributed.mp_policy.reduce_dtype=float32",
                                           "--nproc-per-node=2"};
  const std::string one = run("one", {}), two = run("two", stages);
  EXPECT_EQ(read_file(path_join(one, "adapter_config.json")),
            read_file(path_join(two, "adapter_config.json")));
  const checkpoint::SafetensorsFile wanted(path_join(one, "adapter_model.safetensors"));
  const checkpoint::SafetensorsFile found(path_join(two, "adapter_model.safetensors"));
  ASSERT_EQ(found.tensors().size(), wanted.tensors().size());
  for (const checkpoint::TensorEntry& entry : wanted.tensors()) {
    EXPECT_TRUE(at::allclose(found.read(entry.name), wanted.read(entry.name), 1e-5, 1e-6))
        << entry.name;
  }
  // The checkpoint of one rank goes on as two stages.
  std::filesystem::remove_all(folder.file("two"));
  std::filesystem::copy(
      folder.file("one"), folder.file("two"),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  std::vector<std::string> further = stages;
  further.emplace_back("--step_scheduler.max_steps=4");
  run("two", further);
}

/// A folder with the small model of the smoke recipes.
void copy_base(const std::string& folder) {
  std::filesystem::copy(test::source_file("tests/recipes/data/tiny_llama"), folder);
}

/// Zeroes the file's last bytes, which are of some weight.
void damage(const std::string& path) {
  std::string bytes = read_file(path);
  std::fill(bytes.end() - std::ssize(bytes) / 2, bytes.end(), '\0');
  std::filesystem::remove(path);
  write_file_atomic(path, bytes);
}

/// An adapter's checkpoint has no base: the one that is read has to be that of before.
TEST(FrozenFilesTest, AnotherBaseIsRefused) {
  const TemporaryDirectory folder;
  copy_base(folder.file("base"));
  const auto run = [&](int num_steps, const std::vector<std::string>& more = {}) {
    std::vector<std::string> options = {
        cat("--step_scheduler.max_steps=", num_steps), "--peft._target_=PeftConfig",
        "--peft.target_modules=*_proj",
        cat("--model.pretrained_model_name_or_path=", folder.file("base"))};
    options.insert(options.end(), more.begin(), more.end());
    return test::run_program(test::smoke_run(folder.file("run"), options));
  };
  EXPECT_EQ(run(2).status, 0);
  EXPECT_EQ(run(3).status, 0);
  damage(folder.file("base/model.safetensors"));
  const test::ProgramResult refused = run(4);
  EXPECT_EQ(refused.status, 3);
  EXPECT_NE(refused.err.find("is of another model: the base's weights are others than those of the "
                             "checkpoint"),
            std::string::npos)
      << refused.err;
  // Who names the checkpoint has it, with a warning.
  const test::ProgramResult named = run(4, {"--checkpoint.restore_from=LATEST"});
  EXPECT_EQ(named.status, 0) << named.err;
  EXPECT_NE(named.err.find("the base's weights are others"), std::string::npos);
}

/// What is saved is the base that the run read, not the one that is there by then.
TEST(FrozenFilesTest, ABaseThatChangesWhileTrainingIsRefusedLater) {
  const TemporaryDirectory folder;
  copy_base(folder.file("base"));
  const auto arguments = [&](int num_steps) {
    return test::smoke_run(
        folder.file("run"),
        {cat("--step_scheduler.max_steps=", num_steps), "--step_scheduler.num_epochs=1000000",
         "--step_scheduler.ckpt_every_steps=1000000", "--peft._target_=PeftConfig",
         "--peft.target_modules=*_proj",
         cat("--model.pretrained_model_name_or_path=", folder.file("base"))});
  };
  test::Program program(arguments(1000000));
  test::wait_for_records(folder.file("run/training.jsonl"));
  damage(folder.file("base/model.safetensors"));
  ::kill(program.pid(), SIGTERM);
  EXPECT_EQ(program.wait().status, 75);
  const auto num_steps =
      static_cast<int>(read_records(folder.file("run/training.jsonl")).size()) + 1;
  const test::ProgramResult refused = test::run_program(arguments(num_steps));
  EXPECT_EQ(refused.status, 3);
  EXPECT_NE(refused.err.find("the base's weights are others"), std::string::npos) << refused.err;
}

TEST(FrozenFilesTest, AnotherTeacherIsRefused) {
  const TemporaryDirectory folder;
  std::filesystem::copy(test::source_file("tests/recipes/data/tiny_teacher"),
                        folder.file("teacher"));
  const auto run = [&](int num_steps) {
    return test::run_program(
        {test::automodel_binary(), "run", test::source_file("recipes/smoke/tiny_llama_kd.yaml"),
         cat("--step_scheduler.max_steps=", num_steps),
         cat("--teacher_model.pretrained_model_name_or_path=", folder.file("teacher")),
         cat("--checkpoint.checkpoint_dir=", folder.file("run"))});
  };
  const test::ProgramResult first = run(2);
  ASSERT_EQ(first.status, 0) << first.err;
  damage(folder.file("teacher/model.safetensors"));
  const test::ProgramResult refused = run(3);
  EXPECT_EQ(refused.status, 3);
  EXPECT_NE(refused.err.find("the teacher's weights are others"), std::string::npos) << refused.err;
}

TEST(FrozenFilesTest, AnotherTokenizerIsRefused) {
  const TemporaryDirectory folder;
  std::filesystem::copy(test::source_file("configs/quickstart_tokenizer"), folder.file("tokens"));
  const auto run = [&](int num_steps) {
    return test::run_program(test::smoke_run(
        folder.file("run"),
        {cat("--step_scheduler.max_steps=", num_steps),
         cat("--dataset.tokenizer.pretrained_model_name_or_path=", folder.file("tokens"))}));
  };
  EXPECT_EQ(run(2).status, 0);
  write_file_atomic(folder.file("tokens/tokenizer.json"),
                    read_file(folder.file("tokens/tokenizer.json")) + " ");
  const test::ProgramResult refused = run(3);
  EXPECT_EQ(refused.status, 3);
  EXPECT_NE(refused.err.find("bytes of tokenizer.json are others"), std::string::npos)
      << refused.err;
}

}  // namespace
}  // namespace automodel::recipes
