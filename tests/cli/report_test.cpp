// `automodel report` and `automodel watch` as programs, on the folder of a run that the program
// made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "core/text.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel {
namespace {

using test::automodel_binary;
using test::ProgramResult;
using test::run_program;
using testing::HasSubstr;
using testing::Not;

TEST(ReportCommandTest, ARunIsReportedAndWatched) {
  const test::TemporaryDirectory folder;
  const std::string place = folder.file("a <b>");
  const ProgramResult run = run_program(
      {automodel_binary(), "run", test::source_file("recipes/smoke/tiny_llama_sft.yaml"),
       cat("--checkpoint.checkpoint_dir=", place), "--step_scheduler.max_steps=3",
       "--optimizer.lr=0.25", "--dataset.tokenizer.add_eos_token=true"});
  ASSERT_EQ(run.status, 0) << run.err;
  const ProgramResult report = run_program({automodel_binary(), "report", place});
  EXPECT_EQ(report.status, 0) << report.err;
  EXPECT_THAT(report.out, testing::StartsWith("<!DOCTYPE html>"));
  for (const char* text :
       {"<h1>a &lt;b&gt;</h1>", "<td>done</td>", "<td>3 of 3</td>", "LlamaForCausalLM",
        "<th scope=\"row\">optimizer.lr</th><td>0.25</td><td>command line</td>",
        "loss against step: "}) {
    EXPECT_THAT(report.out, HasSubstr(text));
  }
  EXPECT_THAT(report.out, Not(HasSubstr("a <b>")));
  const std::string page = folder.file("page.html");
  const ProgramResult written = run_program({automodel_binary(), "report", place, "-o", page});
  EXPECT_EQ(written.status, 0) << written.err;
  EXPECT_EQ(written.out, "");
  EXPECT_EQ(read_file(page), report.out);
  const ProgramResult watched = run_program({automodel_binary(), "watch", place});
  EXPECT_EQ(watched.status, 0) << watched.err;
  EXPECT_THAT(watched.out, testing::StartsWith("a <b> | step 0 of 3 | loss "));
  EXPECT_THAT(watched.out, testing::EndsWith("a <b> | done\n"));
  EXPECT_EQ(split(watched.out, '\n').size(), 5U);
  const ProgramResult once = run_program({automodel_binary(), "watch", "--once", place});
  EXPECT_EQ(once.status, 0) << once.err;
  EXPECT_THAT(once.out, testing::StartsWith("a <b>  step 3/3  loss "));
  EXPECT_THAT(once.out, HasSubstr("latest events"));
}

TEST(ReportCommandTest, AFolderThatIsNoRunsIsAWrongArgument) {
  const test::TemporaryDirectory folder;
  for (const char* command : {"report", "watch"}) {
    const ProgramResult result = run_program({automodel_binary(), command, folder.path()});
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, cat(folder.path(),
                              " is not the folder of a run: it has neither training.jsonl nor "
                              "run.json; a run's folder is its checkpoint.checkpoint_dir\n"));
    EXPECT_EQ(run_program({automodel_binary(), command}).status, 2);
  }
}

TEST(ReportCommandTest, AFullDiskIsTold) {
  const test::TemporaryDirectory folder;
  folder.write("run/run.json", "{}");
  const ProgramResult result = run_program(
      {"/bin/sh", "-c",
       cat("exec ", automodel_binary(), " report ", folder.file("run"), " > /dev/full")});
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.err, "cannot write the report: is the disk full, or its reader gone?\n");
}

}  // namespace
}  // namespace automodel
