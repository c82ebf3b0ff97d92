#include "loggers/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "core/text.h"

namespace automodel::loggers {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Curve = std::function<double(int64_t step)>;

/// "step: kind" of every advice on a curve of losses.
std::vector<std::string> kinds_on(int64_t num_steps, const Curve& loss, const Curve& lr = nullptr) {
  Adviser adviser;
  std::vector<std::string> kinds;
  for (int64_t step = 0; step < num_steps; ++step) {
    const StepFacts facts{.step = step,
                          .loss = loss(step),
                          .grad_norm = 1,
                          .lr = lr ? lr(step) : 1e-3,
                          .seconds = 1,
                          .waited_seconds = 0.01};
    for (const Advice& advice : adviser.after_step(facts)) {
      kinds.push_back(cat(step, ": ", advice.kind));
    }
  }
  return kinds;
}

/// A loss as training has it: `floor + height * steps^-power`, with relative normal noise.
Curve falling(double floor, double height, double power, double noise, unsigned seed) {
  auto random = std::make_shared<std::mt19937>(seed);
  return [=](int64_t step) {
    std::normal_distribution<double> normal(0, noise);
    const double loss = floor + height * std::pow(static_cast<double>(step + 1), -power);
    return loss * (1 + normal(*random));
  };
}

TEST(AdviserTest, HealthyRunsAreLeftInPeace) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    EXPECT_THAT(kinds_on(3000, falling(1.5, 9, 0.4, 0.01, seed)), IsEmpty()) << seed;
    EXPECT_THAT(kinds_on(3000, falling(0.1, 10, 0.5, 0.1, seed)), IsEmpty()) << seed;
  }
  EXPECT_THAT(kinds_on(20000, falling(2, 8, 0.15, 0.02, 1)), IsEmpty());
  // Noise with a heavy tail, as small batches of unlike samples have.
  std::mt19937 random(3);
  std::lognormal_distribution<double> heavy(0, 0.5);
  EXPECT_THAT(kinds_on(3000,
                       [&](int64_t step) {
                         return (1 + 8 / std::sqrt(static_cast<double>(step + 1))) * heavy(random);
                       }),
              IsEmpty());
}

TEST(AdviserTest, AScheduleThatEndsIsNoPlateau) {
  const auto cosine = [](int64_t step) {
    return 1e-3 * 0.5 * (1 + std::cos(3.14159265 * static_cast<double>(step) / 1000));
  };
  EXPECT_THAT(
      kinds_on(
          1000, [&](int64_t step) { return 2 + 1e-3 * static_cast<double>(1000 - step); }, cosine),
      IsEmpty());
}

TEST(AdviserTest, ALossThatNoLongerFallsIsAPlateauOnce) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal(0, 0.05);
  const auto found = kinds_on(4000, [&](int64_t step) {
    return (step < 300 ? 6 - 0.01 * static_cast<double>(step) : 3) + normal(random);
  });
  ASSERT_EQ(found.size(), 1U) << join(found, ", ");
  EXPECT_THAT(found[0], HasSubstr(": plateau"));
}

TEST(AdviserTest, APlateauThatEndsMayComeAgain) {
  const auto found = kinds_on(10000, [&](int64_t step) {
    const double wave = 0.01 * std::sin(static_cast<double>(step));
    return (step < 2000   ? 4
            : step < 2500 ? 4 - 0.004 * static_cast<double>(step - 2000)
                          : 2) +
           wave;
  });
  ASSERT_EQ(found.size(), 2U) << join(found, ", ");
  EXPECT_THAT(found[1], HasSubstr(": plateau"));
}

TEST(AdviserTest, ASpikeIsSaidWithItsNumbersAndItsEchoesAreNot) {
  Adviser adviser;
  std::vector<std::string> texts;
  for (int64_t step = 0; step < 400; ++step) {
    const double wave = 0.02 * std::sin(static_cast<double>(step));
    const bool is_spike = step == 120 || step == 125 || step == 300;
    const StepFacts facts{.step = step,
                          .loss = is_spike ? 9 : 3 - 0.002 * static_cast<double>(step) + wave,
                          .grad_norm = is_spike ? 31.25 : 1.5,
                          .lr = 3e-4};
    for (const Advice& advice : adviser.after_step(facts)) {
      EXPECT_EQ(advice.kind, "spike");
      EXPECT_TRUE(advice.is_warning);
      texts.push_back(advice.text);
    }
  }
  ASSERT_EQ(texts.size(), 2U) << join(texts, "\n");
  EXPECT_EQ(texts[0],
            "spike at step 120: loss 9.000, where the median of the 64 steps before was 2.825 "
            "(gradient norm 31.2, median 1.500); look at its data, and if more follow take a lower "
            "learning rate than 3.00e-04 or a longer warm-up");
  EXPECT_THAT(texts[1], HasSubstr("spike at step 300:"));
}

TEST(AdviserTest, ANormAloneIsASpikeToo) {
  Adviser adviser;
  std::vector<Advice> found;
  for (int64_t step = 0; step < 60; ++step) {
    found = adviser.after_step({.step = step, .loss = 3, .grad_norm = step == 59 ? 12.0 : 1.0});
    if (step < 59) {
      ASSERT_THAT(found, IsEmpty());
    }
  }
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].text,
              HasSubstr("gradient norm 12.0, where the median of the 59 steps before "
                        "was 1.000; look"));
}

TEST(AdviserTest, ALossThatRisesAndStaysUpHasDiverged) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal(0, 0.05);
  std::vector<std::string> found = kinds_on(1000, [&](int64_t step) {
    const auto at = static_cast<double>(step);
    return (step < 300 ? 6 - 0.01 * at : std::min(3 + 0.02 * (at - 300), 8.0)) + normal(random);
  });
  std::erase_if(found, [](const std::string& one) { return !one.ends_with("divergence"); });
  ASSERT_EQ(found.size(), 1U);
  EXPECT_LT(parse_int(found[0].substr(0, found[0].find(':'))).value_or(1000), 420);
}

TEST(AdviserTest, ALossThatIsSoonFarAboveTheFirstIsToldOnce) {
  const auto exploded = [](double factor, int64_t from) {
    return kinds_on(40, [=](int64_t step) { return step < from ? 7.7 : 7.7 * factor; });
  };
  EXPECT_THAT(exploded(150, 1), ElementsAre("4: divergence"));
  EXPECT_THAT(exploded(3.1, 12), Contains("15: divergence"));
  EXPECT_THAT(exploded(2.9, 1), IsEmpty());
  // Four times a small loss is still a small one.
  EXPECT_THAT(kinds_on(40, [](int64_t step) { return step < 1 ? 0.2 : 0.8; }), IsEmpty());
  Adviser adviser;
  std::vector<Advice> all;
  for (int64_t step = 0; step < 9 && all.empty(); ++step) {
    all = adviser.after_step({.step = step, .loss = step < 1 ? 7.7 : 1111.0, .lr = 5});
  }
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].text,
            "the loss is 1111.0 at step 4 and was 7.700 at step 0: 4 steps in a row are far above "
            "it; take a lower learning rate than 5.000 or a longer warm-up, and begin anew");
}

TEST(AdviserTest, LossesThatAreNotNumbersArePassedOver) {
  EXPECT_THAT(kinds_on(500,
                       [](int64_t step) {
                         return step % 50 == 9 ? std::nan("")
                                               : 5 - 0.005 * static_cast<double>(step);
                       }),
              IsEmpty());
}

TEST(AdviserTest, StepsThatWaitForDataAreToldOnceUntilTheyDoNot) {
  Adviser adviser;
  std::vector<std::string> texts;
  for (int64_t step = 0; step < 400; ++step) {
    const bool is_slow = step < 100 || step >= 300;
    const StepFacts facts{.step = step,
                          .loss = 5 - 0.01 * static_cast<double>(step),
                          .seconds = 0.5,
                          .waited_seconds = is_slow ? 0.2 : 0.01};
    for (const Advice& advice : adviser.after_step(facts)) {
      EXPECT_EQ(advice.kind, "slow_data");
      texts.push_back(advice.text);
    }
  }
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[0],
            "steps wait for the data: 40 % of the last 20 steps' time (4.000 of 10.0 s); data on a "
            "faster disk, or in a form that takes less work a sample, helps");
}

TEST(AdviserTest, ExpertsThatGetNothingAreARoutingCollapse) {
  Adviser adviser;
  std::mt19937 random(1);
  std::vector<std::string> texts;
  const auto look = [&](int64_t begin, int64_t end, const std::vector<double>& collapsed) {
    for (int64_t step = begin; step < end; ++step) {
      std::vector<double> even(8);
      std::uniform_real_distribution<double> tokens(20, 200);
      for (double& count : even) count = tokens(random);
      for (const Advice& advice :
           adviser.after_routing(step, {{"layer 1", even}, {"layer 2", collapsed}})) {
        EXPECT_EQ(advice.kind, "routing");
        texts.push_back(advice.text);
      }
    }
  };
  look(0, 100, std::vector<double>(8, 100));
  EXPECT_THAT(texts, IsEmpty());
  look(100, 500, {400, 400, 0, 0, 0, 0, 0, 0});
  ASSERT_EQ(texts.size(), 1U);
  EXPECT_THAT(texts[0], testing::MatchesRegex(
                            "routing collapse in layer 2 at step [0-9]+: 6 of 8 experts get less "
                            "than 5 % of an even share of the tokens, the busiest [34].[0-9] times "
                            "one; .*"));
  look(500, 900, std::vector<double>(8, 100));
  look(900, 1300, {400, 400, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(texts.size(), 2U);
}

TEST(AdviserTest, RoutingMayBeToldForManyStepsAtOnce) {
  const std::vector<double> collapsed = {400, 400, 0, 0, 0, 0, 0, 0};
  std::vector<double> of_ten = collapsed;
  for (double& tokens : of_ten) tokens *= 10;
  Adviser one_by_one, ten_at_once;
  for (int64_t step = 0; step < 100; ++step) {
    const auto single = one_by_one.after_routing(step, {{"layer 2", collapsed}});
    if (step % 10 != 9) continue;
    const auto summed = ten_at_once.after_routing(step, {{"layer 2", of_ten, 10}});
    ASSERT_EQ(summed.size(), single.size()) << step;
    for (size_t i = 0; i < summed.size(); ++i) EXPECT_EQ(summed[i].text, single[i].text);
    EXPECT_EQ(summed.size(), step == 49 ? 1U : 0U) << step;
  }
}

TEST(AdviserTest, ADiskThatWillBeFullIsToldOnceUntilThereIsRoom) {
  Adviser adviser;
  const DiskFacts enough{"runs", int64_t{10} << 30, int64_t{1} << 30, 8};
  EXPECT_FALSE(adviser.after_save(enough));
  DiskFacts small = enough;
  small.free_bytes = int64_t{7} << 30;
  const auto advice = adviser.after_save(small);
  ASSERT_TRUE(advice);
  EXPECT_EQ(advice->kind, "disk");
  EXPECT_EQ(advice->text,
            "the disk of runs will be full before the end: 7 GiB are free, and 8 more checkpoints "
            "of 1 GiB need 8 GiB; free some, or set checkpoint.max_recent_checkpoints");
  EXPECT_FALSE(adviser.after_save(small));
  EXPECT_FALSE(adviser.after_save(enough));
  EXPECT_TRUE(adviser.after_save(small));
  small.num_to_come = 0;
  EXPECT_FALSE(adviser.after_save(small));
}

/// "step: text" of every advice on the times of ranks that `seconds` gives for a rank and a step.
std::vector<std::string> stragglers_in(
    int64_t num_steps, size_t num_ranks,
    const std::function<double(size_t rank, int64_t step)>& seconds, int64_t num_stages = 1) {
  Adviser adviser;
  std::vector<std::string> texts;
  for (int64_t step = 0; step < num_steps; ++step) {
    RankTimes times{.step = step, .num_stages = num_stages};
    for (size_t rank = 0; rank < num_ranks; ++rank) times.seconds.push_back(seconds(rank, step));
    if (const auto advice = adviser.after_times(times)) {
      EXPECT_EQ(advice->kind, "straggler");
      EXPECT_TRUE(advice->is_warning);
      texts.push_back(advice->text);
    }
  }
  return texts;
}

TEST(AdviserTest, RanksThatHoldTheOthersUpAreNamedOnceUntilTheyDoNot) {
  const auto is_slow = [](int64_t step) { return step < 200 || step >= 400; };
  const auto texts = stragglers_in(
      600, 4, [&](size_t rank, int64_t step) { return rank == 2 && is_slow(step) ? 0.75 : 0.5; });
  ASSERT_EQ(texts.size(), 2U) << join(texts, "\n");
  EXPECT_EQ(
      texts[0],
      "rank 2 holds the others up (step 79): by itself it works 0.750 s on a step, where the "
      "median of the ranks with the same work is 0.500 s; look at what else its machine does, "
      "at a throttled clock, at the disk of the data, and at the tokens that experts get");
  EXPECT_THAT(texts[1], HasSubstr("rank 2 holds the others up (step 479): "));
}

TEST(AdviserTest, RanksOfASlowMachineAreNamedTogether) {
  const auto texts = stragglers_in(
      200, 8, [](size_t rank, int64_t) { return rank == 4 || rank == 5 ? 0.9 : 0.5; });
  ASSERT_EQ(texts.size(), 1U) << join(texts, "\n");
  EXPECT_THAT(texts[0], HasSubstr("ranks 4, 5 hold the others up (step 79): by themselves they "
                                  "work 0.900 s on a step, where the median of the ranks with "
                                  "the same work is 0.500 s; look at what else their machines do"));
}

TEST(AdviserTest, OfTwoRanksTheSlowerOneIsNamedAfterTenSecondsAtLeast) {
  // 64 of their steps take a second.
  const auto texts =
      stragglers_in(3000, 2, [](size_t rank, int64_t) { return rank == 1 ? 1.0 / 64 : 1.0 / 100; });
  ASSERT_EQ(texts.size(), 1U) << join(texts, "\n");
  EXPECT_THAT(texts[0], HasSubstr("rank 1 holds the others up (step 639): "));
}

TEST(AdviserTest, StagesOfUnequalSizeHoldNobodyUp) {
  const auto by_stage = [](size_t rank, int64_t) { return rank < 2 ? 0.5 : 1.5; };
  EXPECT_THAT(stragglers_in(500, 4, by_stage, 2), IsEmpty());
  EXPECT_EQ(stragglers_in(500, 4, by_stage, 4).size(), 0U);  // nobody has the same work
  const auto texts = stragglers_in(
      500, 4, [](size_t rank, int64_t) { return rank < 2    ? 0.5
                                                : rank == 3 ? 2.0
                                                            : 1.5; }, 2);
  ASSERT_EQ(texts.size(), 1U) << join(texts, "\n");
  EXPECT_THAT(texts[0], HasSubstr("rank 3 holds"));
}

TEST(AdviserTest, RanksThatAreSlowByTurnsHoldNobodyUp) {
  // Another program takes a core of one rank for some seconds, then of the other.
  EXPECT_THAT(stragglers_in(5000, 2,
                            [](size_t rank, int64_t step) {
                              return static_cast<size_t>(step / 70 % 2) == rank ? 1.0 : 0.5;
                            }),
              IsEmpty());
  std::mt19937 random(7);
  std::lognormal_distribution<double> heavy(-0.7, 0.5);
  EXPECT_THAT(stragglers_in(20000, 8, [&](size_t, int64_t) { return heavy(random); }), IsEmpty());
  EXPECT_THAT(stragglers_in(20000, 2, [&](size_t, int64_t) { return heavy(random); }), IsEmpty());
  EXPECT_THAT(stragglers_in(100, 1, [&](size_t, int64_t) { return heavy(random); }), IsEmpty());
}

}  // namespace
}  // namespace automodel::loggers
