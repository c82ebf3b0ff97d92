#include <gtest/gtest.h>

#include <sstream>

#include "config/load.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "recipes/recipe.h"
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

/// The base recipe names files of the repository by absolute paths.
std::string base_recipe() {
  const std::string root = test::source_file("");
  return replace_all(read_file(test::source_file("tests/recipes/base.yaml")), "ROOT/", root);
}

TEST(MistakesTest, TheBaseRecipeIsRight) {
  EXPECT_EQ(findings_of(base_recipe(), Case{}), "");
}

TEST(MistakesTest, EveryMistakeIsToldInFull) {
  const std::string root = test::source_file("");
  for (const Case& test_case : read_cases(test::source_file("tests/recipes/mistakes.txt"))) {
    std::string text = base_recipe();
    for (const auto& [from, to] : test_case.edits) {
      const size_t at = text.find(from);
      ASSERT_NE(at, std::string::npos) << test_case.name << ": no '" << from << "'";
      text.replace(at, from.size(), replace_all(to, "ROOT/", root));
    }
    const std::string found = replace_all(findings_of(text, test_case), root, "ROOT/");
    EXPECT_EQ(found, test_case.expected) << test_case.name;
    if (found != test_case.expected && std::getenv("AUTOMODEL_PRINT_FINDINGS") != nullptr) {
      std::istringstream lines(found);
      std::printf("=== %s\n", test_case.name.c_str());
      for (std::string line; std::getline(lines, line);) std::printf("| %s\n", line.c_str());
    }
  }
}

}  // namespace
}  // namespace automodel::recipes
