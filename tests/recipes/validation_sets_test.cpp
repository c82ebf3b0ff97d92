// Validation sets beside the training set: what they have of it, and their order.
#include <gtest/gtest.h>

#include "config/load.h"
#include "recipes/read/dataset_recipe.h"
#include "recipes/read/read_recipe.h"
#include "recipes/read/recipe.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

/// What reading a recipe of such sets finds.
std::vector<std::string> findings_of(const std::string& training, const std::string& validation) {
  const config::Document document =
      config::load_text(cat("dataset: {", training, "}\nvalidation_dataset: {", validation, "}\n"),
                        "recipe.yaml", {});
  config::Diagnostics diagnostics(document.sources);
  read_recipe(document.root, diagnostics);
  std::vector<std::string> texts;
  for (const config::Finding& finding : diagnostics.findings()) {
    if (finding.path.starts_with("dataset") || finding.path.starts_with("validation_dataset")) {
      texts.push_back(finding.text);
    }
  }
  return texts;
}

/// A recipe whose training set is `training`, and whose validation set is `validation`.
Recipe recipe_of(const std::string& training, const std::string& validation) {
  const config::Document document =
      config::load_text(cat("dataset: {", training, "}\nvalidation_dataset: {", validation, "}\n"),
                        "recipe.yaml", {});
  config::Diagnostics diagnostics(document.sources);
  return read_recipe(document.root, diagnostics);
}

TEST(ValidationSetsTest, HaveTheTrainingSetsTokenizerUnlessTheyNameOne) {
  const std::string rows = "_target_: TextFileDataset, path: rows.jsonl";
  const std::string one = test::source_file("configs/quickstart_tokenizer");
  const std::string other = test::source_file("tests/recipes/data/tiny_llama");
  const auto folder_of = [&](const std::string& training, const std::string& validation) {
    return recipe_of(rows + training, rows + validation).validation_datasets.at(0).tokenizer_folder;
  };
  EXPECT_EQ(folder_of("", ""), std::nullopt);
  EXPECT_EQ(folder_of(", tokenizer: " + one, ""), one);
  EXPECT_EQ(folder_of(", tokenizer: " + one, ", tokenizer: " + other), other);
  EXPECT_EQ(folder_of("", ", tokenizer: " + other), other);
  const Recipe recipe = recipe_of(
      rows + cat(", tokenizer: {pretrained_model_name_or_path: ", one, ", add_eos_token: true}"),
      rows);
  EXPECT_TRUE(recipe.validation_datasets.at(0).encoder_options.adds_eos);
}

TEST(ValidationSetsTest, NothingIsToldOfWhatTheyHaveOfTheTrainingSet) {
  const std::string columns =
      "_target_: ColumnMappedTextInstructionDataset, "
      "path_or_dataset_id: rows.jsonl, "
      "column_mapping: {question: question, answer: answer}";
  const std::string tokenizer = cat(", tokenizer: {pretrained_model_name_or_path: ",
                                    test::source_file("configs/quickstart_tokenizer"),
                                    ", truncation_side: left, ", "add_eos_token: true}");
  EXPECT_EQ(findings_of(columns + ", truncation: longest_first, seq_length: 8" + tokenizer,
                        "_target_: ChatDataset, path_or_dataset_id: rows.jsonl"),
            std::vector<std::string>());
  // A mistake in it is told once.
  const auto found = findings_of(columns + ", tokenizer: /no/such/folder", columns);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].starts_with("no such folder: /no/such/folder")) << found[0];
}

TEST(ValidationSetsTest, HaveTheTrainingSetsChatTemplateUnlessTheyNameOne) {
  const std::string chat = "_target_: ChatDataset, path_or_dataset_id: rows.jsonl";
  const auto template_of = [&](const std::string& training, const std::string& validation) {
    const Recipe recipe = recipe_of(training, validation);
    return recipe.validation_datasets.at(0).plan->named_template();
  };
  const std::string one = ", chat_template: '{{ messages }}'";
  const std::string other = ", chat_template: '{{ messages[0] }}'";
  EXPECT_EQ(template_of(chat, chat), std::nullopt);
  EXPECT_EQ(template_of(chat + one, chat), "{{ messages }}");
  EXPECT_EQ(template_of(replace_all(chat, "ChatDataset",
                                    "nemo_automodel.components.datasets.llm.ChatDataset") +
                            one,
                        chat),
            "{{ messages }}");
  EXPECT_EQ(template_of(chat + one, chat + other), "{{ messages[0] }}");
  EXPECT_EQ(template_of(chat, chat + other), "{{ messages[0] }}");
  // Of another class it is no option of.
  const std::string rows = "_target_: TextFileDataset, path: rows.jsonl";
  EXPECT_NE(recipe_of(chat + one, rows).validation_datasets.at(0).plan, nullptr);
}

TEST(ValidationSetsTest, AreShuffledUnlessTheLoaderSaysNo) {
  const test::TemporaryDirectory folder;
  const auto labels_of = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = test::smoke_run(
        folder.file(name), {"--checkpoint.enabled=false", "--step_scheduler.max_steps=1",
                            "--validation_dataset._target_=ColumnMappedTextInstructionDataset",
                            "--validation_dataset.path_or_dataset_id=recipes/data/gsm8k_test.jsonl",
                            "--validation_dataset.limit_dataset_samples=5",
                            "--validation_dataset.column_mapping.question=question",
                            "--validation_dataset.column_mapping.answer=answer",
                            "--validation_dataset.tokenizer=configs/quickstart_tokenizer"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const test::ProgramResult run = test::run_program(test::on({2, {}}, arguments));
    EXPECT_EQ(run.status, 0) << run.err;
    const auto records = test::read_records(path_join(folder.file(name), "validation.jsonl"));
    return records.at(0).at("num_label_tokens").as_int();
  };
  // Of five rows two ranks leave out the last one.
  const int64_t by_default = labels_of("default", {});
  EXPECT_EQ(by_default, labels_of("shuffled", {"--validation_dataloader.shuffle=true"}));
  EXPECT_NE(by_default, labels_of("in order", {"--validation_dataloader.shuffle=false"}));
}

TEST(ValidationSetsTest, NoCheckpointIsTheBestByASetWithoutLabels) {
  const test::TemporaryDirectory folder;
  // Two ranks leave out the last row, the only one that is not cut before its answer.
  const auto row = [](const std::string& question) {
    return cat(R"({"messages": [{"role": "user", "content": ")", question,
               R"("}, {"role": "assistant", "content": "five"}]})", "\n");
  };
  const std::string cut = row("how many people were there in the room after the first hour of it?");
  folder.write("rows.jsonl", cat(cut, cut, row("?")));
  const std::string results = folder.file("results");
  const test::ProgramResult run = test::run_program(test::on(
      {2, {}},
      test::smoke_run(results,
                      {"--step_scheduler.max_steps=1", "--validation_dataset._target_=ChatDataset",
                       cat("--validation_dataset.path_or_dataset_id=", folder.file("rows.jsonl")),
                       "--validation_dataset.chat_template="
                       "{% for m in messages %}{{ m.content }}{% endfor %}",
                       "--validation_dataset.tokenizer=configs/quickstart_tokenizer",
                       "--validation_dataset.seq_length=8", "--validation_dataset.truncation=true",
                       "--validation_dataloader.shuffle=false"})));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE((run.out + run.err).find("has no token to predict"), std::string::npos) << run.err;
  EXPECT_TRUE(path_exists(path_join(results, "LATEST")));
  EXPECT_FALSE(path_exists(path_join(results, "LOWEST_VAL")));
  EXPECT_EQ(test::read_records(path_join(results, "validation.jsonl"))
                .at(0)
                .at("num_label_tokens")
                .as_int(),
            0);
}

TEST(ValidationSetsTest, RowsWithoutALabelEndTheRunBeforeItsFirstStepAndAreOfANamedSet) {
  const test::TemporaryDirectory folder;
  folder.write("rows.jsonl", R"({"question": "q", "answer": ""})"
                             "\n");
  const std::string set = "--validation_dataset.";
  const test::ProgramResult run = test::run_program(test::smoke_run(
      folder.file("results"),
      {"--step_scheduler.max_steps=1", set + "_target_=ColumnMappedTextInstructionDataset",
       cat(set, "path_or_dataset_id=", folder.file("rows.jsonl")),
       set + "column_mapping.question=question", set + "column_mapping.answer=answer",
       set + "tokenizer=configs/quickstart_tokenizer"}));
  EXPECT_EQ(run.status, 3) << run.err;
  EXPECT_NE((run.out + run.err).find("validation_dataset: no row of "), std::string::npos)
      << run.err;
  EXPECT_EQ((run.out + run.err).find("step 0 |"), std::string::npos);
}

}  // namespace
}  // namespace automodel::recipes
