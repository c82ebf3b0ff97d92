#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
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
            "{\"error\": \"list object has no element 0\", \"line\": 4, \"column\": 19}\n");
}

TEST(RenderChatTest, TakesTheTemplateOfATokenizersFolder) {
  const std::string line = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n";
  const char* wanted =
      "{\"rendered\": \"<|im_start|>user\\na<|im_end|>\\n\", \"generation\": []}\n";
  for (const char* path :
       {"configs/quickstart_tokenizer", "configs/quickstart_tokenizer/tokenizer_config.json"}) {
    EXPECT_EQ(render(line, cat("--template ", path)).out, wanted) << path;
  }
  const test::TemporaryDirectory folder;
  const std::string config = folder.write("tokenizer_config.json", "{\"eos_token\": \"x\"}");
  const test::ProgramResult without = render(line, cat("--template ", folder.path()));
  EXPECT_EQ(without.status, 3);
  EXPECT_EQ(without.err, cat(folder.path(),
                             ": neither chat_template.jinja nor "
                             "tokenizer_config.json has a chat template\n"));
  EXPECT_EQ(render(line, cat("--template ", config)).err,
            cat(config, ": there is no chat_template in it\n"));
  folder.write("tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"tools\"}, "
               "{\"name\": \"default\", \"template\": \"a text\"}]}");
  EXPECT_EQ(render(line, cat("--template ", folder.path())).out,
            "{\"rendered\": \"a text\", \"generation\": []}\n");
}

TEST(RenderChatTest, TakesTheTemplateTheTimeAndTheVariablesOfALine) {
  const test::ProgramResult run = render(
      "{\"template\": \"{{ strftime_now('%d %b %Y') }} {{ x }} {{ add_generation_prompt }}\", "
      "\"messages\": [], \"now\": \"2026-08-01T12:00:00\", \"vars\": {\"x\": 1}, \"kwargs\": "
      "{\"add_generation_prompt\": true}}\n",
      "");
  EXPECT_EQ(run.out, "{\"rendered\": \"01 Aug 2026 1 True\", \"generation\": []}\n");
}

/// As the tokenizer renders; `chat_template_kwargs` is what servers call a template's variables.
TEST(RenderChatTest, TakesTheTokenizersSpecialTokensAndTheVariablesOfServers) {
  const test::TemporaryDirectory folder;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    folder.write(name, read_file(test::source_file(cat("configs/quickstart_tokenizer/", name))));
  }
  folder.write("chat_template.jinja", "{{ eos_token }}{{ x }}");
  const auto rendered = [&](const char* line) {
    return render(cat(line, "\n"), cat("--template ", folder.path()));
  };
  EXPECT_EQ(rendered(R"({"chat_template_kwargs": {"x": 2}})").out,
            "{\"rendered\": \"<|endoftext|>2\", \"generation\": []}\n");
  EXPECT_EQ(rendered(R"({"eos_token": "E", "kwargs": {"x": 3}})").out,
            "{\"rendered\": \"E3\", \"generation\": []}\n");
  const test::ProgramResult unknown = rendered("{\"x\": 4}\n{\"x\": 5}");
  EXPECT_EQ(unknown.out,
            "{\"rendered\": \"<|endoftext|>\", \"generation\": []}\n"
            "{\"rendered\": \"<|endoftext|>\", \"generation\": []}\n");
  EXPECT_EQ(unknown.err,
            "warning: line 1: `x` is not read; variables of the template are members of "
            "`kwargs`\n");
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

TEST(InspectDataTest, ShowsWhatCountsAndWhatIsOdd) {
  const test::ProgramResult run = test::run_program(
      {test::automodel_binary(), "inspect-data", "recipes/llm_finetune/chat_quickstart.yaml",
       "--samples", "1", "--dataset.split=train[:2]"});
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(run.out,
            "What counts in the loss is between [[ and ]].\n"
            "--- recipes/data/chat_sums.jsonl:1, 63 tokens\n"
            "<|im_start|>system\nYou count things and show the sum.<|im_end|>\n"
            "<|im_start|>user\nAda has 22 cards and gets 11 more. How many cards are "
            "there?<|im_end|>\n"
            "<|im_start|>assistant\n[[22 + 11 = 33, so there are 33 cards.<|im_end|>]]\n"
            "---\n2 rows; of the first ones:\n"
            "2 samples: 63 to 82 tokens, half of them up to 82\n"
            "50 of 145 tokens count in the loss (34.5 %)\n"
            "samples that truncation cut: 0 (0 tokens)\n"
            "rows without a label: 0\n"
            "samples that begin with two BOS: 0\n"
            "samples whose labels do not end with a special token (no end to learn): 0\n");
}

/// The lines of `inspect-data --json` of a recipe.
std::vector<Json> sample_lines(const std::string& recipe, std::vector<std::string> more) {
  more.insert(more.begin(), {test::automodel_binary(), "inspect-data", recipe, "--json"});
  const test::ProgramResult run = test::run_program(more);
  EXPECT_EQ(run.status, 0) << run.err;
  std::vector<Json> lines;
  for (const std::string& line : split(run.out, '\n')) {
    if (!line.empty()) lines.push_back(Json::parse(line, "a line"));
  }
  return lines;
}

TEST(InspectDataTest, WritesTokensAndLabelsAsJson) {
  const std::vector<Json> lines =
      sample_lines("recipes/smoke/tiny_llama_sft.yaml", {"--samples", "2"});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1].at("origin").as_string(), "tests/recipes/data/rows.jsonl:2");
  const Json::Array& ids = lines[0].at("input_ids").as_array();
  const Json::Array& labels = lines[0].at("labels").as_array();
  ASSERT_EQ(ids.size(), labels.size());
  EXPECT_EQ(lines[0].at("num_attended").as_int(), std::ssize(ids));
  int num_labels = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    if (labels[i].as_int() == -100) continue;
    EXPECT_EQ(labels[i].as_int(), ids[i + 1].as_int()) << i;
    ++num_labels;
  }
  EXPECT_GT(num_labels, 3);
  // Packs are the samples where there are packs.
  const std::vector<Json> packs =
      sample_lines("recipes/smoke/tiny_llama_sft.yaml",
                   {"--samples", "1", "--packed_sequence.packed_sequence_size=512"});
  ASSERT_EQ(packs.size(), 1U);
  EXPECT_EQ(packs[0].at("input_ids").size(), 512U);
  EXPECT_GT(packs[0].at("document_lengths").size(), 1U);
}

/// Data that have no rows, and data that have no texts.
TEST(InspectDataTest, WritesSequencesOfTokenFilesAsJson) {
  const std::string recipe = "recipes/llm_pretrain/token_files_quickstart.yaml";
  const std::vector<Json> lines = sample_lines(recipe, {"--samples", "3"});
  ASSERT_EQ(lines.size(), 3U);
  const Json::Array& ids = lines[2].at("input_ids").as_array();
  const Json::Array& labels = lines[2].at("labels").as_array();
  ASSERT_EQ(ids.size(), labels.size());
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(labels[i].as_int(), ids[i + 1].as_int());
  // Tokens that are drawn have no text.
  const std::string mock = "recipes/llm_benchmark/qwen3_moe_tiny.yaml";
  EXPECT_EQ(sample_lines(mock, {"--samples", "1"}).size(), 1U);
  const test::ProgramResult as_text =
      test::run_program({test::automodel_binary(), "inspect-data", mock});
  EXPECT_EQ(as_text.status, 2);
  EXPECT_NE(as_text.err.find("--json shows them, there is no text"), std::string::npos);
}

/// The last token of a document is a label alone.
TEST(InspectDataTest, ShowsWhatCountsInEachDocumentOfAPack) {
  const test::TemporaryDirectory folder;
  const std::string data = folder.write("x.jsonl",
                                        "{\"q\": \"Hi\", \"a\": \"One\"}\n"
                                        "{\"q\": \"Who\", \"a\": \"Two\"}\n");
  const test::ProgramResult run = test::run_program(
      {test::automodel_binary(), "inspect-data", "recipes/smoke/tiny_llama_sft.yaml",
       cat("--dataset.path_or_dataset_id=", data), "--dataset.column_mapping.question=q",
       "--dataset.column_mapping.answer=a", "--packed_sequence.packed_sequence_size=64"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, testing::HasSubstr("\nHi O[[ne]]Who T[[wo]]\n---\n1 rows;"));
  const test::ProgramResult padded = test::run_program(
      {test::automodel_binary(), "inspect-data", "recipes/smoke/tiny_llama_sft.yaml",
       cat("--dataset.path_or_dataset_id=", data), "--dataset.column_mapping.question=q",
       "--dataset.column_mapping.answer=a", "--packed_sequence.packed_sequence_size=64",
       "--packed_sequence.pad_to_multiple_of=4"});
  EXPECT_THAT(padded.out, testing::HasSubstr("\nHi O[[ne]]<|pad|>"));
  EXPECT_THAT(padded.out, testing::HasSubstr("Who T[[wo]]<|pad|>"));
}

TEST(InspectDataTest, NamesAllWrongRowsAndShowsTheOthers) {
  const test::TemporaryDirectory folder;
  const std::string good =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
      "\n";
  const std::string without_role = R"({"messages": [{"content": "a"}]})"
                                   "\n";
  const auto inspect = [&](const std::string& rows, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {
        test::automodel_binary(), "inspect-data", "recipes/llm_finetune/chat_quickstart.yaml",
        cat("--dataset.path_or_dataset_id=", folder.write("x.jsonl", rows)),
        "--dataset.split=train"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    test::ProgramResult run = test::run_program(arguments);
    EXPECT_EQ(run.status, 3);
    run.err = replace_all(run.err, folder.file("x.jsonl"), "x.jsonl");
    return run;
  };
  const std::string no_role =
      "message 1: the role must be system, user, assistant or tool, found none\n";
  const test::ProgramResult one = inspect(good + without_role + good);
  EXPECT_EQ(one.err, cat("x.jsonl:2: ", no_role));
  EXPECT_THAT(one.out, testing::HasSubstr("3 rows; of the first ones:\n2 samples: "));
  const std::string both = cat("x.jsonl:1: ", no_role, "x.jsonl:3: ", no_role,
                               "2 rows are wrong; a run ends at the first that it reads\n");
  EXPECT_EQ(inspect(without_role + good + without_role).err, both);
  EXPECT_EQ(
      inspect(without_role + good + without_role, {"--packed_sequence.packed_sequence_size=64"})
          .err,
      both);
  EXPECT_EQ(inspect(good + good, {"--dataset.seq_length=4"}).err,
            "none of the 2 conversations from x.jsonl:1 on has a token that counts in the loss: "
            "seq_length 4 cuts all of the assistant's turns off\n");
  std::string many;
  for (int i = 0; i < 25; ++i) many += without_role;
  const std::string err = inspect(many).err;
  EXPECT_THAT(err, testing::EndsWith(cat("x.jsonl:20: ", no_role,
                                         "...\n25 rows are wrong; a run ends at the first that "
                                         "it reads\n")));
}

TEST(InspectDataTest, WritesOnePageInWhichDataStayText) {
  const test::TemporaryDirectory folder;
  const std::string data = folder.write(
      "x.jsonl", R"({"messages": [{"role": "user", "content": "<script>alert('&')</script>"}, )"
                 R"({"role": "assistant", "content": "a \"b\" c d e f g h"}], "note": 1})"
                 "\n");
  const test::ProgramResult run = test::run_program(
      {test::automodel_binary(), "inspect-data", "recipes/llm_finetune/chat_quickstart.yaml",
       cat("--dataset.path_or_dataset_id=", data), "--dataset.split=train",
       "--dataset.seq_length=40", "--html", folder.file("page.html")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, cat(folder.file("page.html"), ": 1 samples\n"));
  const std::string page = read_file(folder.file("page.html"));
  EXPECT_EQ(page.find("<script"), std::string::npos) << page;
  EXPECT_NE(page.find("&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;"), std::string::npos)
      << page;
  EXPECT_NE(page.find("<mark>a &quot;b&quot;"), std::string::npos) << page;
  EXPECT_NE(page.find("more are cut off</h2>"), std::string::npos) << page;
  EXPECT_NE(page.find("<li>samples that truncation cut: 1 ("), std::string::npos) << page;
  EXPECT_NE(page.find("<li>columns that nothing reads: note</li>"), std::string::npos) << page;
  for (const char* reference : {"http", "src=", "href="}) {
    EXPECT_EQ(page.find(reference), std::string::npos) << reference;
  }
}

}  // namespace
}  // namespace automodel
