// `automodel new` for conversations and a tokenizer without a chat template.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/file.h"
#include "core/json.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel {
namespace {

using testing::HasSubstr;

TEST(NewChatTest, TheTemplateThatIsWrittenHasToolsAndCalls) {
  const test::TemporaryDirectory folder;
  const std::string model = folder.file("model");
  std::filesystem::copy(test::source_file("tests/recipes/data/tiny_llama"), model);
  const std::string tokenizer = test::source_file("configs/quickstart_tokenizer/");
  std::filesystem::copy_file(tokenizer + "tokenizer.json", model + "/tokenizer.json");
  Json config = Json::parse_file(tokenizer + "tokenizer_config.json");
  config.erase("chat_template");
  write_file_atomic(model + "/tokenizer_config.json", config.dump());
  folder.write(
      "rows.jsonl",
      R"({"messages": [{"role": "user", "content": "Is it warm?"}, {"role": "assistant", )"
      R"("content": null, "tool_calls": [{"type": "function", "function": {"name": "warmth", )"
      R"("arguments": {"city": "Paris"}}}]}, {"role": "tool", "content": "yes"}, )"
      R"({"role": "assistant", "content": "It is."}], "tools": [{"type": "function", )"
      R"("function": {"name": "warmth", "parameters": {}}}]})"
      "\n");
  const std::string recipe = folder.file("new.yaml");
  const test::ProgramResult made =
      test::run_program({test::automodel_binary(), "new", "--task", "sft", "--model", model,
                         "--data", folder.file("rows.jsonl"), "-o", recipe});
  ASSERT_EQ(made.status, 0) << made.err;
  const test::ProgramResult shown =
      test::run_program({test::automodel_binary(), "inspect-data", recipe});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("<|im_start|>tools\n[{\"type\": \"function\""));
  EXPECT_THAT(shown.out, HasSubstr("[[<tool_call>{\"name\": \"warmth\", \"arguments\": {\"city\": "
                                   "\"Paris\"}}</tool_call><|im_end|>]]"));
  EXPECT_THAT(shown.out, HasSubstr("[[It is.<|im_end|>]]"));
  EXPECT_THAT(shown.out, testing::Not(HasSubstr("does not write tools")));
}

}  // namespace
}  // namespace automodel
