// Runs with noise on embedded tokens (neftune).
#include <gtest/gtest.h>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::Spread;
using test::TemporaryDirectory;

std::vector<Json> noisy_records(const std::string& folder, const Spread& spread,
                                const std::vector<std::string>& more = {}) {
  std::vector<std::string> keys = {"--neftune.noise_alpha=30", "--step_scheduler.max_steps=4",
                                   "--step_scheduler.local_batch_size=1",
                                   "--step_scheduler.ckpt_every_steps=2"};
  keys.insert(keys.end(), more.begin(), more.end());
  return test::smoke_records(folder, spread, keys);
}

TEST(NeftuneTest, LossesAreEqualOnEveryMesh) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = noisy_records(folder.file("one"), test::sharded(1));
  ASSERT_EQ(one.size(), 4u);
  const std::vector<Json> none =
      noisy_records(folder.file("none"), test::sharded(1), {"--neftune=none"});
  EXPECT_GT(std::abs(one[0].at("loss").as_double() - none[0].at("loss").as_double()), 1e-4);
  const std::pair<const char*, Spread> meshes[] = {
      {"fsdp2", test::sharded(2)},
      {"tp2", test::sharded(2, {"--distributed.tp_size=2"})},
      {"split",
       test::sharded(2, {"--distributed.tp_size=2", "--distributed.sequence_parallel=true"})},
      {"cp2", test::sharded(2, {"--distributed.cp_size=2"})}};
  for (const auto& [name, spread] : meshes) {
    SCOPED_TRACE(name);
    test::expect_equal_records(one, noisy_records(folder.file(name), spread), 1e-5);
  }
}

TEST(NeftuneTest, AResumedRunContinuesToTheBit) {
  const TemporaryDirectory folder;
  const std::vector<Json> whole = noisy_records(folder.file("whole"), {1, {}});
  noisy_records(folder.file("parts"), {1, {}}, {"--step_scheduler.max_steps=2"});
  test::expect_equal_records(whole, noisy_records(folder.file("parts"), {1, {}}), 0);
}

TEST(NeftuneTest, ValidationHasNoNoise) {
  const TemporaryDirectory folder;
  const auto validated = [&](const char* name, const char* neftune) {
    noisy_records(
        folder.file(name), {1, {}},
        {neftune, "--optimizer.lr=0", "--step_scheduler.val_every_steps=2",
         "--validation_dataset._target_=ColumnMappedTextInstructionDataset",
         "--validation_dataset.path_or_dataset_id=" +
             test::source_file("tests/recipes/data/validation.jsonl"),
         "--validation_dataset.column_mapping.question=question",
         "--validation_dataset.column_mapping.answer=answer",
         "--validation_dataset.tokenizer=" + test::source_file("configs/quickstart_tokenizer")});
    return test::read_records(path_join(folder.file(name), "validation.jsonl"));
  };
  const std::vector<Json> noisy = validated("noisy", "--neftune.noise_alpha=30");
  const std::vector<Json> plain = validated("plain", "--neftune=none");
  ASSERT_EQ(noisy.size(), plain.size());
  ASSERT_FALSE(noisy.empty());
  EXPECT_EQ(noisy[0].at("val_loss").as_double(), plain[0].at("val_loss").as_double());
}

TEST(NeftuneTest, TheSizeAloneIsTheSection) {
  const TemporaryDirectory folder;
  const std::vector<Json> section = noisy_records(folder.file("section"), {1, {}});
  const std::vector<Json> number = noisy_records(folder.file("number"), {1, {}}, {"--neftune=30"});
  test::expect_equal_records(section, number, 0);
  for (const char* wrong : {"--neftune=-1", "--neftune.noise_alpha=-1"}) {
    const test::ProgramResult run =
        test::run_program({test::automodel_binary(), "check",
                           test::source_file("recipes/smoke/tiny_llama_sft.yaml"), wrong});
    EXPECT_EQ(run.status, 2) << run.out;
  }
  const test::ProgramResult diffusion = test::run_program(
      {test::automodel_binary(), "check",
       test::source_file("recipes/smoke/tiny_diffusion_gemma.yaml"), "--neftune=5"});
  EXPECT_EQ(diffusion.status, 6) << diffusion.out;
}

}  // namespace
}  // namespace automodel::recipes
