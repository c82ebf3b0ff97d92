#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "core/text.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::cli {
namespace {

using test::ProgramResult;
using test::source_file;
using testing::HasSubstr;

/// Recipes in the shapes of upstream's, whose keys are known.
constexpr const char* kShapes[] = {"benchmark_experts", "class_defaults", "classes_and_targets",
                                   "dense_sft",         "distillation",   "lora_packed"};

std::string shape(const char* name) {
  return source_file(cat("tests/recipes/shapes/", name, ".yaml"));
}

/// Validates recipes against the schema that is in the repository.
ProgramResult validate(std::vector<std::string> recipes) {
  recipes.insert(recipes.begin(),
                 {"/usr/bin/env", "python3", source_file("scripts/validate_recipes.py"),
                  source_file("schemas/recipe.schema.json")});
  return test::run_program(recipes);
}

TEST(PublishedSchemaTest, TakesEveryRecipeOfTheProjectAndEveryShapeOfUpstreams) {
  std::vector<std::string> recipes = {source_file("recipes"),
                                      source_file("tests/recipes/base.yaml"),
                                      source_file("tests/recipes/key_effects.yaml")};
  for (const char* name : kShapes) recipes.push_back(shape(name));
  const ProgramResult result = validate(recipes);
  EXPECT_EQ(result.status, 0) << result.out << result.err;
}

TEST(PublishedSchemaTest, RefusesSlipsAndWrongTypes) {
  const test::TemporaryDirectory folder;
  const std::string base = read_file(source_file("tests/recipes/base.yaml"));
  const std::pair<const char*, const char*> mistakes[] = {
      {"max_steps: 6", "max_setps: 6"},
      {"max_steps: 6", "max_steps: many"},
      {"local_batch_size: 2", "local_batch_size: 0"},
      {"strategy: ddp", "strategy: ddpp"},
      {"torch.optim.AdamW", "AdamV"},
      {"lr: 1.0e-3", "lr: -1.0e-3"},
      {"lr_decay_style: cosine", "lr_decay_stile: cosine"},
      {"enabled: true", "enabled: maybe"}};
  for (const auto& [from, to] : mistakes) {
    const std::string text = replace_all(base, from, to);
    ASSERT_NE(text, base) << from;
    const ProgramResult result = validate({folder.write("recipe.yaml", text)});
    EXPECT_EQ(result.status, 1) << to << "\n" << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("0 of 1 recipes fit the schema"));
  }
}

/// Recipes in upstream's shapes are no mistakes: right, or not in this version; so is one of a kind
/// whose keys nobody here knows, the schema included.
TEST(PublishedSchemaTest, CheckTakesTheShapesToo) {
  std::vector<const char*> names(std::begin(kShapes), std::end(kShapes));
  names.push_back("other_kind");
  for (const char* name : names) {
    const ProgramResult result =
        test::run_program({test::automodel_binary(), "check", shape(name)});
    const std::string_view text = name;
    const bool is_all_here = text == "classes_and_targets" || text == "class_defaults" ||
                             text == "lora_packed" || text == "benchmark_experts" ||
                             text == "distillation";
    EXPECT_EQ(result.status, is_all_here ? 0 : 6) << name << "\n" << result.out << result.err;
    EXPECT_THAT(result.out, testing::Not(HasSubstr(": error:"))) << name;
  }
}

/// The long form of this, over more recipes: scripts/mutate_recipes.py --help.
TEST(MutatedRecipesTest, MistakesAreRefusedAndNoRecipeIsSuspected) {
  std::vector<std::string> arguments = {
      "/usr/bin/env",        "python3",  source_file("scripts/mutate_recipes.py"),
      "--count=100",         "--jobs=2", cat("--binary=", test::automodel_binary()),
      source_file("recipes")};
  for (const char* name : kShapes) arguments.push_back(shape(name));
  const ProgramResult result = test::run_program(arguments);
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("100 of 100 mutated recipes refused"));
}

}  // namespace
}  // namespace automodel::cli
