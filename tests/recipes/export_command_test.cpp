// `automodel export` beside what a run exports itself.
#include <gmock/gmock.h>

#include "core/file.h"
#include "core/text.h"
#include "recipes/runs.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using testing::HasSubstr;

ProgramResult export_to(const std::string& checkpoint, const std::string& out) {
  return test::run_program({test::automodel_binary(), "export", checkpoint, out});
}

class ExportCommandTest : public testing::Test {
 protected:
  void train(const std::vector<std::string>& more) {
    std::vector<std::string> options = {"--step_scheduler.max_steps=2",
                                        "--step_scheduler.ckpt_every_steps=1"};
    options.insert(options.end(), more.begin(), more.end());
    const ProgramResult run = test::run_program(test::smoke_run(run_, options));
    ASSERT_EQ(run.status, 0) << run.err;
  }

  test::TemporaryDirectory folder_;
  const std::string run_ = folder_.file("run");
};

TEST_F(ExportCommandTest, WritesWhatTheRunWritesAtItsEnd) {
  train({"--nproc-per-node=2", "--distributed.strategy=fsdp2"});
  const std::string own = path_join(run_, "LATEST/model/consolidated");
  const std::string out = folder_.file("out");
  const ProgramResult result = export_to(path_join(run_, "LATEST"), out);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(cat(out, ": ")));
  ASSERT_EQ(list_directory(out), list_directory(own));
  for (const std::string& name : list_directory(own)) {
    EXPECT_EQ(read_file(path_join(out, name)), read_file(path_join(own, name))) << name;
  }
  // An earlier checkpoint has no such folder of its own, and other weights.
  const std::string first = path_join(run_, "epoch_0_step_0");
  EXPECT_FALSE(path_exists(path_join(first, "model/consolidated")));
  EXPECT_EQ(export_to(first, folder_.file("first")).status, 0);
  bool is_other = false;
  for (const std::string& name : list_directory(own)) {
    is_other |=
        read_file(path_join(folder_.file("first"), name)) != read_file(path_join(own, name));
  }
  EXPECT_TRUE(is_other);
  EXPECT_THAT(export_to(first, out).err, HasSubstr("out is there already"));
}

/// The checkpoint keeps where the recipe's files were found, which is not where the run is started.
TEST_F(ExportCommandTest, OfARecipeOfAnotherFolder) {
  const auto there = [&](const std::string& command) {
    return test::run_program(
        {"/bin/sh", "-c",
         cat("cd ", folder_.path(), " && ", test::automodel_binary(), " ", command)});
  };
  const ProgramResult run =
      there(cat("run ", test::source_file("recipes/smoke/tiny_llama_sft.yaml"),
                " --step_scheduler.max_steps=2 "
                "--checkpoint.checkpoint_dir=run"));
  ASSERT_EQ(run.status, 0) << run.err;
  const ProgramResult exported = there("export run/LATEST out");
  EXPECT_EQ(exported.status, 0) << exported.err;
  const ProgramResult parity = there("parity --export run/LATEST/model/consolidated");
  EXPECT_EQ(parity.status, 0) << parity.err;
}

TEST_F(ExportCommandTest, WhatIsNoCheckpointIsTold) {
  train({});
  EXPECT_THAT(export_to(run_, folder_.file("out")).err,
              HasSubstr(cat("run holds checkpoints and is none: name one of them, e.g. ", run_)));
  EXPECT_THAT(export_to(folder_.path(), folder_.file("out")).err, HasSubstr("is no checkpoint"));
  EXPECT_THAT(export_to(folder_.file("no"), folder_.file("out")).err,
              HasSubstr("there is no such folder"));
}

TEST_F(ExportCommandTest, AnAdapterIsNamed) {
  train({"--peft._target_=nemo_automodel.components._peft.lora.PeftConfig",
         "--peft.target_modules=*_proj", "--peft.dim=4"});
  const ProgramResult result = export_to(path_join(run_, "LATEST"), folder_.file("out"));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("is an adapter, which PEFT reads as it is; for a whole model: "
                                    "automodel merge-lora "));
}

}  // namespace
}  // namespace automodel::recipes
