#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "config/load.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "recipes/check/check_recipe.h"
#include "recipes/check/check_run.h"
#include "recipes/read/read_recipe.h"
#include "recipes/read/recipe.h"
#include "recipes/run/run_recipe.h"
#include "support/temporary_directory.h"

namespace automodel::recipes {
namespace {

/// One case of mistakes.txt: changes of a right recipe, and everything that is then said.
struct Case {
  std::string name;
  std::vector<std::pair<std::string, std::string>> edits;  ///< text -> text, first occurrence
  std::vector<std::string> overrides;
  int64_t world_size = 1;
  std::string expected;
};

std::string unescape(const std::string& text) {
  return replace_all(text, "\\n", "\n");
}

std::vector<Case> read_cases(const std::string& path) {
  std::vector<Case> cases;
  for (const std::string& line : split(read_file(path), '\n')) {
    if (line.starts_with("=== ")) {
      cases.push_back({line.substr(4), {}, {}, 1, ""});
    } else if (line.starts_with("edit: ")) {
      const size_t arrow = line.find(" => ");
      AM_CHECK(arrow != std::string::npos, line);
      cases.back().edits.emplace_back(unescape(line.substr(6, arrow - 6)),
                                      unescape(line.substr(arrow + 4)));
    } else if (line.starts_with("override: ")) {
      cases.back().overrides.push_back(line.substr(10));
    } else if (line.starts_with("world_size: ")) {
      cases.back().world_size = *parse_int(line.substr(12));
    } else if (line.starts_with("| ")) {
      cases.back().expected += line.substr(2) + "\n";
    } else if (line == "|") {
      cases.back().expected += "\n";
    }
  }
  return cases;
}

/// Everything `check` says about a recipe's text, without notes and warnings.
std::string findings_of(const std::string& text, const Case& test_case) {
  try {
    const config::Document document = config::load_text(text, "recipe.yaml", test_case.overrides);
    config::Diagnostics diagnostics(document.sources);
    const Recipe recipe = read_recipe(document.root, diagnostics);
    check_run(recipe, {.world_size = test_case.world_size}, diagnostics);
    std::string out;
    for (const auto severity : {config::Severity::kError, config::Severity::kUnsupported}) {
      for (const std::string& finding : diagnostics.render_all(severity)) out += finding + "\n";
    }
    return out;
  } catch (const UserError& error) {
    return cat(error.what(), "\n");
  }
}

/// What a run tells of a recipe's text before it trains, and its exit status.
std::pair<int, std::string> refusal_of(const std::string& text, const Case& test_case) {
  const test::TemporaryDirectory folder;
  RunOptions options;
  options.recipe_path = folder.write("recipe.yaml", text);
  options.overrides = test_case.overrides;
  if (test_case.world_size > 1) options.num_local_ranks = static_cast<int>(test_case.world_size);
  try {
    return {run_recipe(options), ""};
  } catch (const UserError& error) {
    return {static_cast<int>(error.code()), error.what()};
  }
}

/// The exit status of `check`.
int status_of_check(const std::string& text, const Case& test_case) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.write("recipe.yaml", text);
  testing::internal::CaptureStdout();
  int status = 0;
  try {
    status = check_recipe(path, test_case.overrides, test_case.world_size);
  } catch (const UserError& error) {
    status = static_cast<int>(error.code());
  }
  testing::internal::GetCapturedStdout();
  return status;
}

/// The base recipe names files of the repository by absolute paths.
std::string base_recipe() {
  const std::string root = test::source_file("");
  return replace_all(read_file(test::source_file("tests/recipes/base.yaml")), "ROOT/", root);
}

std::string recipe_of(const Case& test_case) {
  const std::string root = test::source_file("");
  std::string text = base_recipe();
  for (const auto& [from, to] : test_case.edits) {
    const std::string old = replace_all(from, "ROOT/", root);
    const size_t at = text.find(old);
    AM_CHECK(at != std::string::npos, test_case.name, ": no '", old, "'");
    text.replace(at, old.size(), replace_all(to, "ROOT/", root));
  }
  return text;
}

TEST(MistakesTest, TheBaseRecipeIsRight) {
  EXPECT_EQ(findings_of(base_recipe(), Case{}), "");
}

TEST(MistakesTest, EveryMistakeIsToldInFull) {
  const std::string root = test::source_file("");
  for (const Case& test_case : read_cases(test::source_file("tests/recipes/mistakes.txt"))) {
    const std::string found =
        replace_all(findings_of(recipe_of(test_case), test_case), root, "ROOT/");
    EXPECT_EQ(found, test_case.expected) << test_case.name;
    if (found != test_case.expected && std::getenv("AUTOMODEL_PRINT_FINDINGS") != nullptr) {
      std::istringstream lines(found);
      std::printf("=== %s\n", test_case.name.c_str());
      for (std::string line; std::getline(lines, line);) std::printf("| %s\n", line.c_str());
    }
  }
}

/// A run is refused before it trains wherever check finds something, with the same status and in
/// the same words; but for what is wrong with folders and files, which `check` calls the recipe's
/// mistake and a run wrong data.
TEST(MistakesTest, WhatCheckFindsARunRefuses) {
  for (const Case& test_case : read_cases(test::source_file("tests/recipes/mistakes.txt"))) {
    const std::string text = recipe_of(test_case);
    const int checked = status_of_check(text, test_case);
    const auto [status, told] = refusal_of(text, test_case);
    EXPECT_NE(checked, 0) << test_case.name;
    EXPECT_NE(status, 0) << test_case.name;
    if (status == static_cast<int>(ExitCode::kInput)) continue;
    EXPECT_EQ(status, checked) << test_case.name << "\n" << told;
    // The first line, without the recipe's folder.
    const std::string first = test_case.expected.substr(0, test_case.expected.find('\n'));
    const std::string expected = replace_all(first, "ROOT/", test::source_file(""));
    // Nor the places where a run of a recipe in a folder of its own has looked for files.
    static const std::regex places("; looked for in \\S+ and in \\S+");
    EXPECT_NE(std::regex_replace(told, places, "").find(expected), std::string::npos)
        << test_case.name << "\n"
        << told;
  }
}

}  // namespace
}  // namespace automodel::recipes
