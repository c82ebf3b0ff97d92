#include "config/other_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/file.h"
#include "core/text.h"
#include "support/program.h"

namespace automodel::config {
namespace {

TEST(OtherNames, AnotherProgramsNameIsKnownWhereItsMeaningIsAKey) {
  const std::vector<std::string> peft = {"dim", "alpha", "dropout", "target_modules"};
  EXPECT_EQ(hint_for_key("r", peft), "; did you mean 'dim'?");
  EXPECT_EQ(hint_for_key("lora_alpha", peft), "; did you mean 'alpha'?");
  const std::vector<std::string> optimizer = {"lr", "betas", "weight_decay"};
  EXPECT_EQ(hint_for_key("learning_rate", optimizer), "; did you mean 'lr'?");
  EXPECT_EQ(hint_for_key("learning_rate", peft), "");
}

TEST(OtherNames, WhatAValueCountsIsSaidWhereItIsSomethingElse) {
  const std::vector<std::string> scheduler = {"lr_warmup_steps", "lr_decay_steps"};
  EXPECT_EQ(hint_for_key("warmup_ratio", scheduler),
            "; did you mean 'lr_warmup_steps'? (it is a number of steps)");
  EXPECT_EQ(hint_of_meaning("warmup_ratio", {{"a.b", "c.d"}}),
            "; did you mean 'a.b' or 'c.d'? (it is a number of steps)");
  EXPECT_EQ(hint_of_meaning("warmup_ratio", {}), "");
}

TEST(OtherNames, LeadToKeysOfRecipes) {
  const std::string schema = read_file(test::source_file("schemas/recipe.schema.json"));
  for (const auto& [elsewhere, here, how] : names_elsewhere()) {
    EXPECT_THAT(schema, testing::HasSubstr(cat("\"", here, "\":"))) << elsewhere;
    EXPECT_EQ(name_here(elsewhere), here);
  }
}

TEST(OtherNames, OtherKeysAreComparedBySpelling) {
  const std::vector<std::string> valid = {"weight_decay"};
  EXPECT_EQ(hint_for_key("weight_decoy", valid), "; did you mean 'weight_decay'?");
  EXPECT_EQ(hint_for_key("zebra", valid), "");
  EXPECT_EQ(name_here("zebra"), "");
}

}  // namespace
}  // namespace automodel::config
