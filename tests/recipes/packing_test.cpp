#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;
using testing::HasSubstr;

ProgramResult run_packed(const test::Spread& spread, const std::string& folder,
                         const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes = {"--model._target_=NeMoAutoModelForCausalLM.from_config",
                                      "--model.pretrained_model_name_or_path=none",
                                      "--model.config=configs/tiny/llama",
                                      "--dataset.path_or_dataset_id=recipes/data/gsm8k_train.jsonl",
                                      "--packed_sequence.packed_sequence_size=384",
                                      "--packed_sequence.max_packs=24",
                                      "--step_scheduler.max_steps=4",
                                      "--step_scheduler.global_batch_size=4",
                                      "--step_scheduler.local_batch_size=2"};
  changes.insert(changes.end(), more.begin(), more.end());
  return test::run_program(test::on(spread, test::smoke_run(folder, changes)));
}

TEST(PackingRunTest, LossesDoNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  const ProgramResult one = run_packed({1, {}}, folder.file("one"));
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr(" samples in 24 packs of 384 tokens, "));
  EXPECT_THAT(one.out + one.err, HasSubstr(" beyond max_packs"));
  const std::vector<Json> wanted = read_records(folder.file("one/training.jsonl"));
  ASSERT_EQ(wanted.size(), 4U);
  const std::vector<std::pair<const char*, test::Spread>> spreads = {
      {"ddp", {2, {}}},
      {"fsdp2", test::sharded(2)},
      {"context parallel", test::sharded(2, {"--distributed.cp_size=2"})},
      {"ring",
       test::sharded(2, {"--distributed.cp_size=2", "--distributed.cp_rotate_method=alltoall"})},
      {"tensor parallel", test::sharded(2, {"--distributed.tp_size=2"})},
      {"pipeline",
       test::sharded(2, {"--distributed.pp_size=2", "--distributed.pipeline.pp_schedule=1f1b",
                         "--distributed.pipeline.pp_microbatch_size=1"})}};
  for (const auto& [name, spread] : spreads) {
    const std::string place = folder.file(name);
    const ProgramResult run = run_packed(spread, place, {"--checkpoint.enabled=false"});
    ASSERT_EQ(run.status, 0) << name << run.err;
    const std::vector<Json> found = read_records(place + "/training.jsonl");
    ASSERT_EQ(found.size(), wanted.size()) << name;
    for (size_t i = 0; i < found.size(); ++i) {
      const double loss = wanted[i].at("loss").as_double();
      EXPECT_NEAR(found[i].at("loss").as_double(), loss, 2e-6 * loss) << name << " step " << i;
      EXPECT_EQ(found[i].at("num_label_tokens").as_int(), wanted[i].at("num_label_tokens").as_int())
          << name;
    }
  }
}

TEST(PackingRunTest, NeatPacksAndContinuesWhereItStood) {
  const TemporaryDirectory folder;
  const std::vector<std::string> neat = {"--packed_sequence.packing_strategy=neat",
                                         "--packed_sequence.num_proc=2",
                                         "--step_scheduler.ckpt_every_steps=2"};
  ASSERT_EQ(run_packed({1, {}}, folder.file("whole"), neat).status, 0);
  std::vector<std::string> part = neat;
  part.push_back("--step_scheduler.max_steps=2");
  const std::string place = folder.file("parts");
  const ProgramResult half = run_packed({1, {}}, place, part);
  ASSERT_EQ(half.status, 0) << half.err;
  ASSERT_EQ(run_packed({1, {}}, place, neat).status, 0);
  test::expect_equal_records(read_records(folder.file("whole/training.jsonl")),
                             read_records(place + "/training.jsonl"), 0);
}

}  // namespace
}  // namespace automodel::recipes
