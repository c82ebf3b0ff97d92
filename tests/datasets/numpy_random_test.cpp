#include "datasets/rows/numpy_random.h"

#include <gtest/gtest.h>

#include "datasets/encoders.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

Json golden() {
  return Json::parse_file(automodel::test::source_file("tests/datasets/data/permutations.json"))
      .at("numpy");
}

TEST(NumpyRandomTest, PermutesAsDefaultRngDoes) {
  const Json file = golden();
  for (const Json& expected : file.at("cases").as_array()) {
    const std::string& seed = expected.at("seed").as_string();
    EXPECT_EQ(numpy_permutation(expected.at("n").as_int(), std::stoull(seed)),
              test::integers(expected.at("order")))
        << expected.at("n").as_int() << " with seed " << seed;
  }
  EXPECT_TRUE(numpy_permutation(0, 1).empty());
}

TEST(NumpyRandomTest, PermutesManyRowsAsDefaultRngDoes) {
  const Json file = golden();
  const Json& expected = file.at("large");
  const std::vector<int64_t> order = numpy_permutation(expected.at("n").as_int(), 42);
  int64_t checksum = 0;
  for (size_t i = 0; i < order.size(); ++i) checksum += order[i] * static_cast<int64_t>(i % 1009);
  EXPECT_EQ(std::vector(order.begin(), order.begin() + 8), test::integers(expected.at("first")));
  EXPECT_EQ(checksum, expected.at("checksum").as_int());
}

}  // namespace
}  // namespace automodel::datasets
