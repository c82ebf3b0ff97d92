// Modules that are trained whole beside adapters, on models whose head is no embedding.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace automodel::recipes
