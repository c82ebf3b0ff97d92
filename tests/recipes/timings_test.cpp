// `run --timings`: where the time to the end of the first step went.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

std::vector<Json> timings_in(const std::string& folder) {
  std::vector<Json> found;
  for (Json& event : test::read_records(path_join(folder, "events.jsonl"))) {
    if (event.at("event").as_string() == "timings") found.push_back(std::move(event));
  }
  return found;
}

/// The milliseconds of the lines that begin with "timings: ", in tenths; the total comes first.
std::vector<int64_t> tenths_in(const std::string& out) {
  std::vector<int64_t> tenths;
  for (const std::string& line : split(out, '\n')) {
    const size_t end = line.find(" ms ");
    if (line.find("| timings: ") == std::string::npos || end == std::string::npos) continue;
    const size_t begin = line.rfind(' ', end - 1) + 1;
    const auto value = parse_double(line.substr(begin, end - begin));
    tenths.push_back(std::llround(10 * value.value_or(-1)));
  }
  return tenths;
}

TEST(TimingsTest, PhasesAddUpToTheTimeToTheEndOfTheFirstStep) {
  for (const int num_ranks : {1, 2}) {
    SCOPED_TRACE(num_ranks);
    const test::TemporaryDirectory folder;
    const auto run = test::on({num_ranks, {"--timings"}}, test::smoke_run(folder.path()));
    const test::ProgramResult result = test::run_program(run);
    ASSERT_EQ(result.status, 0) << result.err;
    const std::vector<Json> found = timings_in(folder.path());
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].at("step").as_int(), 0);
    const double total = found[0].at("seconds").as_double();
    EXPECT_GT(total, 0);
    EXPECT_LT(total, result.seconds);
    double sum = 0;
    std::vector<std::string> names;
    for (const auto& [name, seconds] : found[0].at("phases").as_object()) {
      names.push_back(name);
      sum += seconds.as_double();
      EXPECT_GE(seconds.as_double(), 0) << name;
    }
    EXPECT_NEAR(sum, total, 1e-9);
    EXPECT_THAT(names, testing::ElementsAre(
                           "loading the program", "reading the recipe", "checking it",
                           "describing the run", "ranks", "fetching model and data", "mesh",
                           "model", "optimizer", "tokenizer", "data", "session", "logs", "weights",
                           "first batches", "first step: forward and backward",
                           "first step: optimizer", "first step: counts, records"));
    const std::vector<int64_t> tenths = tenths_in(result.out);
    ASSERT_EQ(tenths.size(), names.size() + 1);
    EXPECT_EQ(std::accumulate(tenths.begin() + 1, tenths.end(), int64_t{0}), tenths[0]);
    EXPECT_NEAR(static_cast<double>(tenths[0]), 1e4 * total, 0.51);
  }
}

TEST(TimingsTest, NobodyIsToldWhoDoesNotAsk) {
  const test::TemporaryDirectory folder;
  const test::ProgramResult result = test::run_program(test::smoke_run(folder.path()));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out.find("timings: "), std::string::npos);
  EXPECT_TRUE(timings_in(folder.path()).empty());
}

}  // namespace
}  // namespace automodel::recipes
