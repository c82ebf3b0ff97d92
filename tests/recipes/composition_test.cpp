// Runs over three axes that are killed and go on over others.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::Spread;
using test::TemporaryDirectory;

using Options = std::vector<std::string>;

constexpr const char* kStageSchedule = "--distributed.pipeline.pp_schedule=Interleaved1F1B";

/// Twelve steps that save after every second one.
Options saved_run(const std::string& recipe, const std::string& folder, const Spread& spread) {
  return test::on(spread,
                  {test::automodel_binary(), "run", test::source_file(recipe),
                   cat("--checkpoint.checkpoint_dir=", folder), "--step_scheduler.max_steps=12",
                   "--step_scheduler.global_batch_size=8", "--step_scheduler.local_batch_size=2",
                   "--step_scheduler.ckpt_every_steps=2", "--checkpoint.max_recent_checkpoints=2"});
}

/// Whether a second checkpoint is being written: the first one is complete then.
bool is_saving_again(const std::string& folder) {
  if (!path_exists(path_join(folder, "LATEST"))) return false;
  const std::vector<std::string> entries = list_directory(folder);
  return std::ranges::count_if(
             entries, [](const std::string& entry) { return entry.starts_with("epoch_"); }) > 1;
}

/// Starts a run and kills it once it has saved. False when it was done before.
bool kill_after_a_save(const Options& arguments, const std::string& folder) {
  test::Program program(arguments);
  const double deadline = monotonic_seconds() + 60;
  while (!is_saving_again(folder) && monotonic_seconds() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_TRUE(is_saving_again(folder));
  ::kill(program.pid(), SIGKILL);
  const ProgramResult run = program.wait();
  return run.status == 128 + SIGKILL;
}

/// A run on the first spread that is killed and goes on as the second one: the records are those of
/// one process.
void expect_continued(const std::string& recipe, const Options& model, const Spread& first,
                      const Spread& second, double tolerance) {
  const TemporaryDirectory folder;
  const auto arguments = [&](const std::string& place, Spread spread) {
    spread.options.insert(spread.options.end(), model.begin(), model.end());
    return saved_run(recipe, folder.file(place), spread);
  };
  const ProgramResult whole = test::run_program(arguments("one", {1, {}}));
  ASSERT_EQ(whole.status, 0) << whole.err;
  const std::vector<Json> wanted = read_records(folder.file("one/training.jsonl"));
  ASSERT_EQ(wanted.size(), 12u);
  std::string place = "run";  // a run may be done before the signal comes
  for (int i = 0; !kill_after_a_save(arguments(place, first), folder.file(place)); ++i) {
    ASSERT_LT(i, 5) << "no run was interrupted";
    place = cat("run", i);
  }
  const ProgramResult run = test::run_program(arguments(place, second));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("resumed from"), std::string::npos) << run.out;
  test::expect_equal_records(wanted, read_records(path_join(folder.file(place), "training.jsonl")),
                             tolerance);
}

TEST(CompositionTest, StagesShardsAndTensorParallelRanksGoOnAsAnotherMesh) {
  const Options llama = {"--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config",
                         "--model.config=tests/recipes/data/llama_8_layers",
                         "--model.pretrained_model_name_or_path=",
                         "--dataset.path_or_dataset_id=recipes/data/gsm8k_train.jsonl"};
  expect_continued(
      "recipes/smoke/tiny_llama_sft.yaml", llama,
      test::sharded(8, {"--distributed.pp_size=2", "--distributed.tp_size=2", kStageSchedule}),
      test::sharded(4, {"--distributed.tp_size=2"}), 2e-6);
}

TEST(CompositionTest, StagesOfExpertsGoOnAsTensorParallelRanks) {
  expect_continued(
      "recipes/smoke/tiny_qwen3_moe.yaml", {"--model.config.router_aux_loss_coef=0"},
      {4,
       {"--distributed.pp_size=2", "--distributed.ep_size=2",
        "--distributed.pipeline.pp_schedule=1f1b", "--distributed.pipeline.pp_microbatch_size=1"}},
      {2, {"--distributed.tp_size=2", "--distributed.ep_size=2"}}, 1e-5);
}

}  // namespace
}  // namespace automodel::recipes
