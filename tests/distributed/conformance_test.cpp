#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>

#include "core/file.h"
#include "core/text.h"
#include "support/program.h"

namespace automodel::distributed {
namespace {

/// "Suite.Name" of every test below tests/.
std::set<std::string> tests_of_the_project() {
  std::set<std::string> names;
  const std::regex definition(R"(TEST(?:_[FP])?\(([A-Za-z0-9_]+),\s*([A-Za-z0-9_]+)\))");
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(test::source_file("tests"))) {
    const std::string path = entry.path().string();
    if (!path.ends_with("_test.cpp")) continue;
    const std::string source = read_file(path);
    for (std::sregex_iterator at(source.begin(), source.end(), definition), end; at != end; ++at) {
      names.insert(cat((*at)[1].str(), ".", (*at)[2].str()));
    }
  }
  return names;
}

TEST(ConformanceTest, EveryRowOfTheTableNamesTestsThatExist) {
  const std::set<std::string> known = tests_of_the_project();
  const std::regex named(R"(`([A-Za-z0-9_]+\.[A-Za-z0-9_]+)`)");
  int64_t rows = 0;
  for (const std::string& line :
       split(read_file(test::source_file("tests/distributed/conformance.md")), '\n')) {
    const size_t tests = line.find(" | ");
    if (!line.starts_with("| ") || line.starts_with("| name |")) continue;
    ASSERT_NE(tests, std::string::npos) << line;
    int64_t found = 0;
    const std::string list = line.substr(tests);
    for (std::sregex_iterator at(list.begin(), list.end(), named), end; at != end; ++at) {
      EXPECT_TRUE(known.contains((*at)[1].str())) << (*at)[1].str();
      ++found;
    }
    EXPECT_GT(found, 0) << line;
    ++rows;
  }
  EXPECT_GT(rows, 80);
}

TEST(ConformanceTest, EveryPatchThatBreaksARowExists) {
  const std::regex named(R"(`([A-Za-z0-9_-]+)`)");
  int64_t patches = 0;
  for (const std::string& line :
       split(read_file(test::source_file("tests/distributed/conformance.md")), '\n')) {
    const std::vector<std::string> cells = split(line, '|');  // "", name, tests, broken by, ""
    if (cells.size() != 5) continue;
    for (std::sregex_iterator at(cells[3].begin(), cells[3].end(), named), end; at != end; ++at) {
      const std::string patch = cat("tests/mutations/", (*at)[1].str(), ".patch");
      EXPECT_TRUE(path_exists(test::source_file(patch))) << patch;
      ++patches;
    }
  }
  EXPECT_GE(patches, 10);
}

}  // namespace
}  // namespace automodel::distributed
