#include <gtest/gtest.h>

#include "core/file.h"
#include "core/text.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel {
namespace {

/// Runs the command on some lines.
test::ProgramResult render(const std::string& lines, const std::string& arguments) {
  const test::TemporaryDirectory folder;
  const std::string input = folder.write("lines.jsonl", lines);
  return test::run_program(
      {"/bin/sh", "-c", cat(test::automodel_binary(), " render-chat ", arguments, " < ", input)});
}

TEST(RenderChatTest, PrintsWhatTheTemplateMakesOfEveryLine) {
  const test::ProgramResult run = render(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"é\"}, {\"role\": \"assistant\", "
      "\"content\": \"ü\"}], \"vars\": {\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}}\n"
      "\n"
      "{\"messages\": []}\n",
      "--template tests/chat/data/templates/trl.lfm2_training.jinja");
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out,
            "{\"rendered\": \"<s><|im_start|>user\\né<|im_end|>\\n<|im_start|>assistant\\n"
            "ü<|im_end|>\\n\", \"generation\": [[54, 66]]}\n"
            "{\"error\": \"list object has no element 0\", \"line\": 4, \"column\": 7}\n");
}

TEST(RenderChatTest, TakesTheTemplateTheTimeAndTheVariablesOfALine) {
  const test::ProgramResult run = render(
      "{\"template\": \"{{ strftime_now('%d %b %Y') }} {{ x }} {{ add_generation_prompt }}\", "
      "\"messages\": [], \"now\": \"2026-08-01T12:00:00\", \"vars\": {\"x\": 1}, \"kwargs\": "
      "{\"add_generation_prompt\": true}}\n",
      "");
  EXPECT_EQ(run.out, "{\"rendered\": \"01 Aug 2026 1 True\", \"generation\": []}\n");
}

TEST(RenderChatTest, LinesAndTemplatesThatAreNoneAreNamed) {
  EXPECT_EQ(render("[1]\n", "").err, "line 1: expected an object, found an array\n");
  EXPECT_EQ(render("{}\n", "").err,
            "line 1: there is no --template, and no string `template` here\n");
  const test::TemporaryDirectory folder;
  const std::string broken = folder.write("broken.jinja", "\n{% if %}");
  const test::ProgramResult run = render("{}\n", cat("--template ", broken));
  EXPECT_EQ(run.status, 3);
  EXPECT_EQ(run.err, cat(broken,
                         ":2:7: error: Expected an expression, got 'end of statement "
                         "block'\n"));
}

}  // namespace
}  // namespace automodel
