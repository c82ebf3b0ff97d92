// Hugging Face folders of every family, loaded and saved again.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>

#include "recipes/folders.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::recipes {
namespace {

/// The folders of tests/golden that have weights as transformers saved them.
std::vector<std::string> golden_folders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_file("tests/golden"))) {
    if (std::filesystem::exists(entry.path() / "model.safetensors")) {
      names.push_back(entry.path().filename());
    }
  }
  std::ranges::sort(names);
  return names;
}

class HfRoundTripTest : public testing::TestWithParam<std::string> {};

TEST_P(HfRoundTripTest, TensorsComeBackByteForByte) {
  const test::TemporaryDirectory folder;
  const std::string golden = test::source_file("tests/golden/" + GetParam());
  test::save_again(golden, folder.file("saved"));
  const auto wanted = test::bytes_of(golden);
  const auto found = test::bytes_of(folder.file("saved"));
  EXPECT_EQ(found.size(), wanted.size());
  for (const auto& [name, bytes] : wanted) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_TRUE(found.at(name) == bytes) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, HfRoundTripTest, testing::ValuesIn(golden_folders()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

}  // namespace
}  // namespace automodel::recipes
