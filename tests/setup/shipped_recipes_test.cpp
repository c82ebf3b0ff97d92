#include "setup/shipped_recipes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::setup {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kHeader =
    "# Trains a thing\n# on data.\n# Task:   chat\n# Family: Gemma 2\n# Size:   2B parameters\n"
    "# Needs:  a GPU,\n#         and patience.\n# Run:    automodel run x.yaml\n# Then:   more\n"
    "recipe: X\n# Task: no header any more\n";

std::vector<std::string> names_of(const std::vector<ShippedRecipe>& recipes) {
  std::vector<std::string> names;
  for (const ShippedRecipe& recipe : recipes) names.push_back(recipe.name);
  return names;
}

TEST(ShippedRecipesTest, AHeadersLinesAreRead) {
  const ShippedRecipe recipe = read_header(kHeader, "a/x", "/p/a/x.yaml");
  EXPECT_EQ(recipe.about, "Trains a thing on data.");
  EXPECT_EQ(recipe.task, "chat");
  EXPECT_EQ(recipe.family, "Gemma 2");
  EXPECT_EQ(recipe.size, "2B parameters");
  EXPECT_EQ(recipe.needs, "a GPU, and patience.");
}

TEST(ShippedRecipesTest, AHeaderWithoutALineIsRefusedByItsName) {
  for (const char* label : {"Task", "Family", "Size", "Needs", "Run"}) {
    const std::string text = replace_all(kHeader, cat("# ", label, ": "), cat("# Else: "));
    EXPECT_EQ(test::error_of<InputError>([&] { read_header(text, "x", "/p/x.yaml"); }),
              cat("/p/x.yaml: the header has no line '# ", label, ": ...'"));
  }
}

TEST(ShippedRecipesTest, EveryShippedRecipeHasAHeader) {
  const auto recipes = find_shipped(test::source_file("recipes"));
  EXPECT_GE(recipes.size(), 20u);
  for (const ShippedRecipe& recipe : recipes) {
    EXPECT_LT(recipe.task.size(), 24u) << recipe.name;
    EXPECT_LT(recipe.family.size(), 24u) << recipe.name;
    EXPECT_THAT(recipe.needs, testing::EndsWith(".")) << recipe.name;
  }
}

TEST(ShippedRecipesTest, AllWordsMustOccurInWhateverCase) {
  const std::vector<ShippedRecipe> recipes = {
      read_header(kHeader, "a/x", ""),
      read_header(replace_all(kHeader, "Gemma 2", "Llama"), "b/y", "")};
  EXPECT_THAT(names_of(with_words(recipes, {})), ElementsAre("a/x", "b/y"));
  EXPECT_THAT(names_of(with_words(recipes, {"CHAT"})), ElementsAre("a/x", "b/y"));
  EXPECT_THAT(names_of(with_words(recipes, {"chat", "gemma"})), ElementsAre("a/x"));
  EXPECT_THAT(names_of(with_words(recipes, {"llama", "gemma"})), ElementsAre());
}

TEST(ShippedRecipesTest, ARecipeIsFoundByItsNameOrTheLastPart) {
  const std::vector<ShippedRecipe> recipes = {read_header(kHeader, "a/one", ""),
                                              read_header(kHeader, "a/two", ""),
                                              read_header(kHeader, "b/two", "")};
  EXPECT_EQ(shipped_by_name(recipes, "a/two").name, "a/two");
  EXPECT_EQ(shipped_by_name(recipes, "one.yaml").name, "a/one");
  EXPECT_EQ(test::error_of<UserError>([&] { shipped_by_name(recipes, "two"); }),
            "which 'two'? There are a/two, b/two");
  EXPECT_EQ(test::error_of<UserError>([&] { shipped_by_name(recipes, "a/tow"); }),
            "no shipped recipe 'a/tow'; did you mean 'a/two'?; automodel ls lists them");
  EXPECT_EQ(test::error_of<UserError>([&] { shipped_by_name(recipes, "gemma"); }),
            "no shipped recipe 'gemma'; 'gemma' is in what is said of a/one, a/two, b/two; "
            "automodel ls lists "
            "them");
  EXPECT_EQ(test::error_of<UserError>([&] { shipped_by_name(recipes, "nosuch"); }),
            "no shipped recipe 'nosuch'; automodel ls lists them");
}

TEST(ShippedRecipesTest, ACopysPathsStayRightAndItsCommandsNameIt) {
  const test::TemporaryDirectory home;
  home.write("data/rows.jsonl", "{}\n");
  home.write("configs/own/config.json", "{}\n");
  const std::string recipe = cat(kHeader,
                                 "# scripts/automodel is named here\n"
                                 "model: {config: configs/own}\n"
                                 "dataset:\n"
                                 "  path_or_dataset_id: [\"data/rows.jsonl\", other/rows.jsonl]\n"
                                 "  tokenizer: &own configs/own\n"
                                 "validation_dataset:\n"
                                 "  path_or_dataset_id: data/rows.jsonl  # data/rows.jsonl again\n"
                                 "  tokenizer: *own\n"
                                 "checkpoint: {checkpoint_dir: data}\n");
  const std::string path = home.write(
      "recipes/a/x.yaml",
      replace_all(recipe, "automodel run x.yaml", "scripts/automodel run recipes/a/x.yaml"));
  const std::string copy = text_of_copy(find_shipped(home.file("recipes")).at(0), "mine.yaml");
  const std::string at = home.path();
  EXPECT_EQ(copy, cat(replace_all(kHeader, "run x.yaml", "run mine.yaml"),
                      "# scripts/automodel is named here\n"
                      "model: {config: ",
                      at,
                      "/configs/own}\n"
                      "dataset:\n"
                      "  path_or_dataset_id: [\"",
                      at,
                      "/data/rows.jsonl\", other/rows.jsonl]\n"
                      "  tokenizer: &own ",
                      at,
                      "/configs/own\n"
                      "validation_dataset:\n"
                      "  path_or_dataset_id: ",
                      at,
                      "/data/rows.jsonl  # data/rows.jsonl again\n"
                      "  tokenizer: *own\n"
                      "checkpoint: {checkpoint_dir: data}\n"));
}

}  // namespace
}  // namespace automodel::setup
