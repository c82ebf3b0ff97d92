#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::cli {
namespace {

using test::ProgramResult;
using test::TemporaryDirectory;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

std::string script_of(const std::string& shell) {
  const ProgramResult run = test::run_program({test::automodel_binary(), "completion", shell});
  EXPECT_EQ(run.status, 0) << run.err;
  return run.out;
}

/// A folder with the script for bash, recipes and other files.
class CompletionTest : public testing::Test {
 protected:
  CompletionTest() {
    folder_.write("automodel.bash", script_of("bash"));
    folder_.write("here/mine.yaml", "");
    folder_.write("here/my notes.yml", "");
    folder_.write("here/mine.txt", "");
    folder_.write("here/more/deep.yaml", "");
  }

  /// What bash offers for a command line, whose last word is the one that is completed.
  std::vector<std::string> offers(const std::vector<std::string>& words) const {
    std::string line;
    for (const std::string& word : words) line += cat(" '", word, "'");
    const ProgramResult run =
        test::run_program({"/bin/bash", "--norc", "-c",
                           cat("cd '", folder_.file("here"),
                               "' && source ../automodel.bash && complete -p automodel "
                               ">/dev/null && COMP_WORDS=(",
                               line,
                               ") && COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && "
                               "_automodel && true; printf '%s\\n' \"${COMPREPLY[@]}\"")});
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.err, "");
    std::vector<std::string> found;
    for (const std::string& one : split(run.out, '\n')) {
      if (!one.empty()) found.push_back(one);
    }
    return found;
  }

  TemporaryDirectory folder_;
};

TEST_F(CompletionTest, CommandsAndRecipesComeFirst) {
  EXPECT_THAT(offers({"automodel", "in"}), ElementsAre("inspect-data"));
  EXPECT_THAT(offers({"automodel", "mi"}), ElementsAre("mine.yaml"));
  const auto all = offers({"automodel", ""});
  for (const char* word : {"run", "check", "ls", "new", "doctor", "mine.yaml", "more/"}) {
    EXPECT_THAT(all, Contains(word));
  }
  EXPECT_THAT(all, Not(Contains("mine.txt")));
}

TEST_F(CompletionTest, EveryCommandOffersEveryOptionOfItsOwn) {
  const Json described = Json::parse(script_of("json"), "commands");
  size_t num_options = 0;
  for (const Json& command : described.at("commands").as_array()) {
    const auto all = offers({"automodel", command.at("name").as_string(), "--"});
    for (const Json& option : command.at("options").as_array()) {
      for (const Json& name : option.at("names").as_array()) {
        if (!name.as_string().starts_with("--")) continue;
        ++num_options;
        EXPECT_THAT(all, Contains(name.as_string())) << command.at("name").as_string();
      }
    }
  }
  EXPECT_GE(num_options, 30u);
  EXPECT_THAT(offers({"automodel", "ls", "--"}), ElementsAre("--json", "--help"));
}

TEST_F(CompletionTest, OptionsOfFewValuesOfferThem) {
  EXPECT_THAT(offers({"automodel", "run", "mine.yaml", "--device", ""}),
              ElementsAre("cpu", "cuda"));
  EXPECT_THAT(offers({"automodel", "new", "--task", "q"}), ElementsAre("qlora"));
  EXPECT_THAT(offers({"automodel", "completion", "z"}), ElementsAre("zsh"));
}

TEST_F(CompletionTest, RecipesFilesAreOfferedWhereARecipeIsTaken) {
  EXPECT_THAT(offers({"automodel", "run", "m"}),
              UnorderedElementsAre("mine.yaml", "more/", "my notes.yml"));
  EXPECT_THAT(offers({"automodel", "check", "more/"}), ElementsAre("more/deep.yaml"));
  EXPECT_THAT(offers({"automodel", "merge-lora", "mine"}),
              UnorderedElementsAre("mine.txt", "mine.yaml"));
}

TEST_F(CompletionTest, KeysOfRecipesAreOfferedSectionBySection) {
  EXPECT_THAT(offers({"automodel", "run", "mine.yaml", "--opt"}), ElementsAre("--optimizer."));
  EXPECT_THAT(offers({"automodel", "run", "mine.yaml", "--step_scheduler.max"}),
              ElementsAre("--step_scheduler.max_steps="));
  EXPECT_THAT(offers({"automodel", "mine.yaml", "--optimizer.lr"}), ElementsAre("--optimizer.lr="));
  EXPECT_THAT(offers({"automodel", "explain", "step_scheduler.max"}),
              ElementsAre("step_scheduler.max_steps"));
}

TEST_F(CompletionTest, ShippedRecipesAreOfferedToCopies) {
  EXPECT_THAT(offers({"automodel", "cp", "smoke/mock"}), ElementsAre("smoke/mock_pretrain"));
}

TEST(CompletionScriptsTest, OtherShellsGetTheSameWords) {
  for (const char* shell : {"zsh", "fish"}) {
    const std::string script = script_of(shell);
    for (const char* word :
         {"inspect-data", "nproc-per-node", "--optimizer.lr=", "smoke/mock_pretrain", "qlora"}) {
      EXPECT_THAT(script, HasSubstr(word)) << shell;
    }
    const std::string path = cat("/usr/bin/", shell);
    if (!path_exists(path)) continue;  // parsed where the shell is there
    const TemporaryDirectory folder;
    const ProgramResult run = test::run_program({path, "-n", folder.write("automodel", script)});
    EXPECT_EQ(run.status, 0) << run.err;
  }
  const ProgramResult wrong = test::run_program({test::automodel_binary(), "completion", "csh"});
  EXPECT_EQ(wrong.status, 2);
}

TEST(ManualPageTest, IsOfTheProgramsOwnCommands) {
  EXPECT_EQ(read_file(test::source_file("schemas/commands.json")), script_of("json"))
      << "automodel completion json > schemas/commands.json, then scripts/make_man_page.py";
}

}  // namespace
}  // namespace automodel::cli
