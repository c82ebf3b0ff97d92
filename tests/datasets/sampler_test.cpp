#include "datasets/loading/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "datasets/encoders.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

Json golden() {
  return Json::parse_file(automodel::test::source_file("tests/datasets/data/permutations.json"));
}

TEST(SamplerTest, PermutesAsTorchDoes) {
  const Json file = golden();
  for (const Json& expected : file.at("cases").as_array()) {
    EXPECT_EQ(random_permutation(expected.at("n").as_int(), expected.at("seed").as_int()),
              test::integers(expected.at("order")))
        << expected.at("n").as_int() << " with seed " << expected.at("seed").as_int();
  }
}

TEST(SamplerTest, PermutesManyRowsAsTorchDoes) {
  const Json file = golden();
  const Json& expected = file.at("large");
  const std::vector<int64_t> order = random_permutation(expected.at("n").as_int(), 42);
  int64_t checksum = 0;
  for (size_t i = 0; i < order.size(); ++i) checksum += order[i] * static_cast<int64_t>(i % 1009);
  EXPECT_EQ(std::vector(order.begin(), order.begin() + 8), test::integers(expected.at("first")));
  EXPECT_EQ(checksum, expected.at("checksum").as_int());
}

TEST(SamplerTest, DealsAsTorchsDistributedSampler) {
  const Json file = golden();
  for (const Json& expected : file.at("dealt").as_array()) {
    const auto replicas = static_cast<int>(expected.at("replicas").as_int());
    for (int rank = 0; rank < replicas; ++rank) {
      const DistributedSampler sampler({.num_rows = expected.at("n").as_int(),
                                        .num_replicas = replicas,
                                        .rank = rank,
                                        .shuffle = expected.at("shuffle").as_bool(),
                                        .seed = 42});
      EXPECT_EQ(sampler.rows(expected.at("epoch").as_int()),
                test::integers(expected.at("ranks").as_array()[static_cast<size_t>(rank)]));
    }
  }
}

TEST(SamplerTest, GivesEveryRowToOneRank) {
  for (const int replicas : {1, 2, 4}) {
    std::vector<int64_t> seen;
    for (int rank = 0; rank < replicas; ++rank) {
      const auto rows =
          DistributedSampler({.num_rows = 20, .num_replicas = replicas, .rank = rank}).rows(1);
      seen.insert(seen.end(), rows.begin(), rows.end());
    }
    std::sort(seen.begin(), seen.end());
    std::vector<int64_t> all(20);
    for (int64_t i = 0; i < 20; ++i) all[static_cast<size_t>(i)] = i;
    EXPECT_EQ(seen, all) << replicas << " ranks";
  }
}

TEST(SamplerTest, RefusesFewerRowsThanRanks) {
  try {
    DistributedSampler({.num_rows = 3, .num_replicas = 4});
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "the dataset has 3 samples, fewer than the 4 data-parallel ranks");
  }
}

}  // namespace
}  // namespace automodel::datasets
