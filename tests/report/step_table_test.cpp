#include "report/records/step_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/text.h"

namespace automodel::report {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::IsNan;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(StepTableTest, FurtherNumbersBecomeColumnsAsTheyAppear) {
  StepTable steps;
  EXPECT_EQ(
      add_steps("{\"step\": 0, \"loss\": 1}\n"
                "{\"step\": 1, \"kd_loss\": 2.5, \"mfu\": null, \"text\": \"x\", \"list\": [7]}\n"
                "{\"step\": 2, \"moe/balance\": NaN, \"kd_loss\": 3}\n",
                steps),
      0);
  ASSERT_EQ(steps.extras.size(), 2U);
  EXPECT_THAT(*steps.extra("kd_loss"), ElementsAre(IsNan(), 2.5, 3.0));
  EXPECT_THAT(*steps.extra("moe/balance"), ElementsAre(IsNan(), IsNan(), IsNan()));
  EXPECT_EQ(steps.extra("mfu"), nullptr);
  add_steps("{\"step\": 3, \"mfu\": 40}\n{\"step\": 4, \"kd_loss\": 5}\n", steps);
  EXPECT_THAT(*steps.extra("kd_loss"), ElementsAre(IsNan(), 2.5, 3.0, IsNan(), 5.0));
  EXPECT_THAT(*steps.extra("mfu"), ElementsAre(IsNan(), IsNan(), IsNan(), 40.0, IsNan()));
}

TEST(StepTableTest, KeysMayChangeTheirOrder) {
  StepTable steps;
  add_steps("{\"step\": 0, \"loss\": 1, \"a\": 2}\n{\"a\": 3, \"loss\": 4, \"step\": 1}\n", steps);
  EXPECT_EQ(steps.of(Metric::kLoss), (std::vector<double>{1, 4}));
  EXPECT_EQ(*steps.extra("a"), (std::vector<double>{2, 3}));
}

/// Numbers of a line, as text.
std::string numbers_of(const std::string& line) {
  StepTable steps;
  const int64_t num_unread = add_steps(line, steps);
  std::string out = cat(num_unread, " unread");
  for (size_t row = 0; row < steps.size(); ++row) {
    out += cat("; ", steps.step[row], " ", steps.seconds[row], " ", steps.tokens[row]);
    for (const Metric metric : kMetrics) out += cat(" ", steps.of(metric)[row]);
    for (const ExtraColumn& column : steps.extras)
      out += cat(" ", column.key, " ", column.values[row]);
  }
  return out;
}

TEST(StepTableTest, LinesOfThePlainFormAreReadAsByTheParserOfAllJson) {
  for (const std::string members : {"\"step\": 1",
                                    "\"step\":1,\"loss\":-0.5e-3 ,\t\"lr\" : 1E+5",
                                    "\"step\": 1, \"loss\": 01",
                                    "\"step\": 1, \"loss\": .5",
                                    "\"step\": 1, \"loss\": 5.",
                                    "\"step\": 1, \"loss\": +5",
                                    "\"step\": 1, \"loss\": 1e",
                                    "\"step\": 1, \"loss\": -",
                                    "\"step\": 1, \"loss\": 1e400",
                                    "\"step\": 1, \"loss\": 1e-400",
                                    "\"step\": 1, \"loss\": inf",
                                    "\"step\": 1, \"loss\": NaN",
                                    "\"step\": 1, \"loss\": -Infinity",
                                    "\"step\": 1, \"loss\": 0x10",
                                    "\"step\": 1, \"x\": nullx",
                                    "\"step\": 1, \"x\": null, \"y\": true, \"z\": false",
                                    "\"step\": 1,",
                                    ", \"step\": 1",
                                    "\"step\": 1 \"loss\": 2",
                                    "\"step\": 1, \"loss\": 2, \"loss\": 3",
                                    "\"step\": 12345678901234567890",
                                    "\"step\": 1, \"timestamp\": \"2026-08-01T00:00:01.500Z\"",
                                    "\"step\": 1, \"timestamp\": 7",
                                    "\"step\": 1, \"text\": \"\x01\"",
                                    "\"step\": 1, \"text\": \"\xFF\"",
                                    "\"step\": 1, \"text\": \"\xC3\xA4\"",
                                    "\"\\u0073tep\": 1",
                                    "\"step\": 1, \"loss\": \"2\"",
                                    "\"step\": 1, \"loss\": {\"step\": 5}",
                                    "step: 1",
                                    "\"step\": 1, \"\": 4",
                                    "\"step\"",
                                    ""}) {
    const std::string line = cat(" {", members, "} ");
    const std::string with_list = cat(" {\"list\": []", members.empty() ? "" : ", ", members, "} ");
    EXPECT_EQ(numbers_of(line + "\n"), numbers_of(with_list + "\n")) << line;
  }
  for (const char* line :
       {"{\"step\": 1}x", "{\"step\": 1}}", "{\"step\": 1", "[\"step\", 1]", "{", "\"step\""}) {
    EXPECT_EQ(numbers_of(cat(line, "\n")), "1 unread") << line;
  }
  EXPECT_EQ(numbers_of("{\"step\": 1, \"loss\": -0.5e-3}\n"),
            "0 unread; 1 nan 0 -5e-04 nan nan nan nan");
}

TEST(StepTableTest, ThereIsAMostOfFurtherNumbers) {
  std::string line = "{\"step\": 0";
  for (int i = 0; i < 500; ++i) line += cat(", \"key", i, "\": ", i);
  StepTable steps;
  add_steps(cat(line, "}\n", line, "}\n"), steps);
  EXPECT_EQ(steps.extras.size(), kMostExtras);
  EXPECT_EQ(steps.other_keys.size(), 100U);
  EXPECT_EQ(steps.other_keys[0], cat("key", kMostExtras));
}

TEST(StepTableTest, TheTimeOfAStepIsReadInItsParts) {
  StepTable steps;
  add_steps(
      "{\"step\": 0, \"data_seconds\": 0.5, \"forward_backward_seconds\": 1, \"update_seconds\": "
      "2, "
      "\"wait_seconds\": 4, \"tps\": 100, \"num_tokens_per_step\": 1000}\n{\"step\": 1}\n",
      steps);
  EXPECT_THAT(steps.of(StepPart::kData), ElementsAre(0.5, IsNan()));
  EXPECT_THAT(steps.of(StepPart::kForwardBackward), ElementsAre(1.0, IsNan()));
  EXPECT_THAT(steps.of(StepPart::kUpdate), ElementsAre(2.0, IsNan()));
  EXPECT_THAT(steps.of(StepPart::kWait), ElementsAre(4.0, IsNan()));
  EXPECT_THAT(steps.of(StepPart::kWhole), ElementsAre(10.0, IsNan()));
}

/// A diffusion run has its own name for the number.
TEST(StepTableTest, TokensOfAStepHaveTwoNames) {
  StepTable steps;
  add_steps(
      "{\"step\": 0, \"tps\": 100, \"num_tokens_per_step\": 1000}\n"
      "{\"step\": 1, \"tps\": 100, \"tokens_per_step\": 500}\n",
      steps);
  EXPECT_THAT(steps.tokens, ElementsAre(1000.0, 1500.0));  // so far
  EXPECT_THAT(steps.of(StepPart::kWhole), ElementsAre(10.0, 5.0));
}

TEST(StepTableTest, SeveralThreadsFindTheSameColumns) {
  std::string lines;
  constexpr int64_t kSteps = 60000;
  for (int64_t step = 0; step < kSteps; ++step) {
    // One key in the first part of the file, another in the last.
    lines +=
        cat("{\"step\": ", step, ", \"loss\": 1.5, \"text\": \"", std::string(40, 'x'), "\", \"",
            step < 10             ? "early"
            : step >= kSteps - 10 ? "late"
                                  : "middle",
            "\": ", step, "}\n");
  }
  StepTable steps;
  EXPECT_EQ(add_steps(lines, steps), 0);
  for (const char* key : {"early", "middle", "late"}) {
    const std::vector<double>* column = steps.extra(key);
    ASSERT_NE(column, nullptr);
    ASSERT_EQ(column->size(), static_cast<size_t>(kSteps));
  }
  EXPECT_EQ((*steps.extra("early"))[3], 3);
  EXPECT_EQ((*steps.extra("middle"))[30000], 30000);
  EXPECT_EQ(steps.extra("late")->back(), kSteps - 1);
  EXPECT_TRUE(std::isnan((*steps.extra("late"))[3]));
}

StepTable table_of(const std::vector<double>& losses) {
  StepTable steps;
  for (size_t i = 0; i < losses.size(); ++i) {
    add_steps(
        cat("{\"step\": ", i, ", \"loss\": ",
            shortest_repr(losses[i]) == "nan" ? std::string("NaN") : shortest_repr(losses[i]),
            ", \"num_tokens_per_step\": 10, \"wait_seconds\": ", i, ", \"x\": ", i % 5, "}\n"),
        steps);
  }
  return steps;
}

TEST(StepTableTest, ThinningKeepsTheExtremesInTheirOrder) {
  StepTable steps = table_of({1, 9, -4, 2, 3, 2, 8, 4, 7, 6});  // rows of four become two
  thin(steps, {8, 2});
  EXPECT_EQ(steps.of(Metric::kLoss), (std::vector<double>{9, -4, 2, 8, 7, 6}));
  EXPECT_EQ(steps.step, (std::vector<double>{1, 3, 5, 7, 8, 9}));
  EXPECT_EQ(steps.tokens, (std::vector<double>{20, 40, 60, 80, 90, 100}));
  EXPECT_EQ(steps.of(StepPart::kWait), (std::vector<double>{1.5, 1.5, 5.5, 5.5, 8, 9}));
  EXPECT_EQ(*steps.extra("x"), (std::vector<double>{0, 3, 4, 0, 3, 4}));
}

TEST(StepTableTest, ThinningKeepsWhatIsNotFinite) {
  StepTable steps = table_of({1, 2, kNaN, 5, kNaN, kNaN, kNaN, kNaN});
  thin(steps, {6, 0});
  EXPECT_THAT(steps.of(Metric::kLoss), ElementsAre(IsNan(), DoubleEq(5), IsNan(), IsNan()));
}

TEST(StepTableTest, ThinningAgainAndAgainKeepsASpikeAndTheLastValues) {
  StepTable steps;
  for (int64_t step = 0; step < 100000; ++step) {
    add_steps(cat("{\"step\": ", step, ", \"loss\": ", step == 54321 ? 99 : 1,
                  ", \"num_tokens_per_step\": 10}\n"),
              steps);
    thin(steps, {1000, 100});
    ASSERT_LE(steps.size(), 1000U);
  }
  EXPECT_GT(steps.size(), 300U);
  const auto& losses = steps.of(Metric::kLoss);
  const auto spike = std::ranges::find(losses, 99);
  ASSERT_NE(spike, losses.end());
  EXPECT_NEAR(steps.step[static_cast<size_t>(spike - losses.begin())], 54321, 1000);
  for (size_t i = 1; i < steps.num_thinned; ++i) {  // rows stand for as many steps as others
    EXPECT_NEAR(steps.step[i] - steps.step[i - 1], static_cast<double>(steps.span),
                static_cast<double>(steps.span));
  }
  for (size_t i = 0; i < 100; ++i) {  // the last ones are all there
    EXPECT_EQ(steps.step[steps.size() - 1 - i], 99999.0 - static_cast<double>(i));
  }
  EXPECT_EQ(steps.tokens.back(), 1000000);
}

}  // namespace
}  // namespace automodel::report
