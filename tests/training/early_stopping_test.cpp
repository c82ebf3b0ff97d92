// When a validation loss ends a run.
#include "training/early_stopping.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace automodel::training {
namespace {

/// The number of the validation that ends the run; -1: none does.
int ends_at(const EarlyStoppingConfig& config, const std::vector<double>& losses) {
  EarlyStopping stopping(config);
  for (size_t i = 0; i < losses.size(); ++i) {
    stopping.see(losses[i], static_cast<int64_t>(10 * i));
    if (stopping.is_due()) return static_cast<int>(i);
  }
  return -1;
}

TEST(EarlyStoppingTest, CountsValidationsInARowWithoutALowerLoss) {
  EXPECT_EQ(ends_at({.patience = 2}, {5, 4, 4, 4, 3}), 3);
  EXPECT_EQ(ends_at({.patience = 2}, {5, 4, 6, 3, 6, 2}), -1);
  EXPECT_EQ(ends_at({.patience = 1}, {5, 4, 3, 3}), 3);
  EXPECT_EQ(ends_at({.patience = 2}, {5, 6, 5.5}), 2);
}

TEST(EarlyStoppingTest, ALowerLossIsLowerByMoreThanTheThreshold) {
  EXPECT_EQ(ends_at({.patience = 2, .threshold = 0.5}, {5, 4.75, 4.6}), 2);
  // Of the best that counted, not of the one before.
  EXPECT_EQ(ends_at({.patience = 3, .threshold = 0.5}, {5, 4.75, 4.4, 4.2, 4, 3.95}), 5);
}

TEST(EarlyStoppingTest, LossesThatAreNotFiniteAreNotLower) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double least = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(ends_at({.patience = 2}, {nan, nan, 3}), 1);
  EXPECT_EQ(ends_at({.patience = 2}, {nan, 3, least, nan}), 3);
  EarlyStopping stopping({.patience = 1});
  stopping.see(nan, 4);
  EXPECT_EQ(stopping.text(), "a validation had no finite loss");
}

TEST(EarlyStoppingTest, GoesOnFromItsState) {
  EarlyStopping first({.patience = 3, .threshold = 0.25});
  for (const double loss : {5.0, 4.0, 3.9, 3.8}) first.see(loss, 7);
  EXPECT_FALSE(first.is_due());
  EarlyStopping second({.patience = 3, .threshold = 0.25});
  second.load_state(Json::parse(first.state().dump(), "state"));
  second.see(3.76, 9);
  EXPECT_TRUE(second.is_due());
  EXPECT_EQ(second.text(), "3 validations in a row had no loss 0.25 below 4.0000, that of step 7");
  EarlyStopping patient({.patience = 4, .threshold = 0});
  patient.load_state(second.state());
  EXPECT_FALSE(patient.is_due());
  patient.restart();
  EXPECT_EQ(patient.state().dump(), EarlyStopping({}).state().dump());
  EarlyStopping fresh({.patience = 1});
  fresh.load_state(EarlyStopping({}).state());
  fresh.see(9, 1);  // the first loss
  EXPECT_FALSE(fresh.is_due());
}

}  // namespace
}  // namespace automodel::training
