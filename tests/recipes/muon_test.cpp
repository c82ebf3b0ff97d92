// Runs whose optimizer changes whole matrices.
#include <gtest/gtest.h>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::Spread;
using test::TemporaryDirectory;

const std::vector<std::string> kMuon = {"--optimizer._target_=dion.Muon", "--optimizer.lr=5e-3",
                                        "--optimizer.scalar_lr=1e-3",
                                        "--optimizer.weight_decay=0.1"};

std::vector<Json> muon_records(const std::string& folder, const Spread& spread,
                               const std::vector<std::string>& more = {},
                               const std::vector<std::string>& optimizer = kMuon) {
  std::vector<std::string> keys = {"--step_scheduler.max_steps=4",
                                   "--step_scheduler.local_batch_size=1",
                                   "--step_scheduler.ckpt_every_steps=2"};
  keys.insert(keys.end(), optimizer.begin(), optimizer.end());
  keys.insert(keys.end(), more.begin(), more.end());
  return test::smoke_records(folder, spread, keys);
}

TEST(MuonRunTest, LossesAreEqualOnEveryMesh) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = muon_records(folder.file("one"), test::sharded(1));
  ASSERT_EQ(one.size(), 4u);
  EXPECT_LT(one.back().at("loss").as_double(), one.front().at("loss").as_double());
  const std::pair<const char*, Spread> meshes[] = {
      {"ddp", {2, {"--distributed.strategy=ddp"}}},
      {"fsdp2", test::sharded(2)},
      {"hsdp", test::sharded(4, {"--distributed.dp_replicate_size=2"})},
      {"cp2", test::sharded(2, {"--distributed.cp_size=2"})},
      {"megatron", {2, {"--distributed.strategy=megatron_fsdp"}}}};
  for (const auto& [name, spread] : meshes) {
    SCOPED_TRACE(name);
    test::expect_equal_records(one, muon_records(folder.file(name), spread), 1e-5);
  }
}

TEST(MuonRunTest, CheckpointsLoadOnOtherMeshes) {
  const TemporaryDirectory folder;
  const std::vector<Json> whole = muon_records(folder.file("whole"), test::sharded(1));
  muon_records(folder.file("parts"), test::sharded(2), {"--step_scheduler.max_steps=2"});
  test::expect_equal_records(whole, muon_records(folder.file("parts"), test::sharded(1)), 1e-5);
}

/// Experts, which AdamW changes, and stages have ranks of their own.
TEST(MuonRunTest, StagesAndExpertsAreThoseOfOneRank) {
  const TemporaryDirectory folder;
  const auto records = [&](const char* name, int num_ranks, std::vector<std::string> options) {
    options.insert(options.end(), kMuon.begin(), kMuon.end());
    options.push_back("--model.config.router_aux_loss_coef=0");
    const ProgramResult run = test::run_program(test::on(
        {num_ranks, options},
        {test::automodel_binary(), "run", test::source_file("recipes/smoke/tiny_qwen3_moe.yaml"),
         cat("--checkpoint.checkpoint_dir=", folder.file(name))}));
    EXPECT_EQ(run.status, 0) << run.err;
    return test::read_records(path_join(folder.file(name), "training.jsonl"));
  };
  const std::vector<Json> one = records("one", 1, {});
  test::expect_equal_records(one, records("ep2", 2, {"--distributed.ep_size=2"}), 1e-5);
  test::expect_equal_records(
      one,
      records("pp2", 2,
              {"--distributed.pp_size=2", "--distributed.pipeline.pp_schedule=1f1b",
               "--distributed.pipeline.pp_microbatch_size=1"}),
      1e-5);
}

TEST(MuonRunTest, TorchsTrainsAdapters) {
  const TemporaryDirectory folder;
  const std::vector<std::string> torchs = {"--optimizer._target_=torch.optim.Muon",
                                           "--optimizer.weight_decay=0.1", "--optimizer.lr=1e-2"};
  const std::vector<std::string> lora = {"--peft.target_modules=*_proj", "--peft.dim=4"};
  const std::vector<Json> one = muon_records(folder.file("one"), test::sharded(1), lora, torchs);
  const std::vector<Json> two = muon_records(folder.file("two"), test::sharded(2), lora, torchs);
  test::expect_equal_records(one, two, 1e-5);
  const ProgramResult whole =
      test::run_program({test::automodel_binary(), "check",
                         test::source_file("recipes/smoke/tiny_llama_sft.yaml"), torchs[0]});
  EXPECT_EQ(whole.status, 2);
  EXPECT_NE(whole.out.find("this optimizer takes matrices alone, and model.layers.0"),
            std::string::npos)
      << whole.out;
}

TEST(MuonRunTest, SplitMatricesAreRefused) {
  const ProgramResult run = test::run_program(
      {test::automodel_binary(), "check", test::source_file("recipes/smoke/tiny_llama_sft.yaml"),
       kMuon[0], "--distributed.strategy=fsdp2", "--distributed.tp_size=2"});
  EXPECT_EQ(run.status, 6);
  EXPECT_NE(run.out.find("tp_size above 1 with Muon is not in this version"), std::string::npos)
      << run.out;
}

}  // namespace
}  // namespace automodel::recipes
