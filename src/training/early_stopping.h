#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "core/field.h"
#include "core/json.h"

namespace automodel::training {

/// The `early_stopping` section: a run ends once its validation loss falls no more.
struct EarlyStoppingConfig {
  int64_t patience = 3;
  double threshold = 0;

  static constexpr auto fields() {
    using C = EarlyStoppingConfig;
    return std::tuple{
        field("patience", &C::patience,
              "validations in a row without a lower loss after which the run ends")
            .at_least(1),
        field("threshold", &C::threshold, "a loss is lower if it is lower by more than this")
            .at_least(0)};
  }
};

/// Follows a run's validation losses. Every rank has one and sees the same.
class EarlyStopping final {
 public:
  explicit EarlyStopping(const EarlyStoppingConfig& config) : config_(config) {}

  /// After a validation at `step`. A loss that is not finite is none that is lower.
  void see(double loss, int64_t step);

  /// Whether the run ends: as many validations in a row as `patience` had no lower loss.
  bool is_due() const { return num_without_ >= config_.patience; }

  /// "3 validations in a row had no loss below 1.2345, that of step 8".
  std::string text() const;

  /// As if nothing had been seen.
  void restart() { *this = EarlyStopping(config_); }

  /// What a checkpoint keeps. load_state() goes on from there, by this object's patience and
  /// threshold.
  Json state() const;
  void load_state(const Json& state);

 private:
  EarlyStoppingConfig config_;
  double best_ = 0;         // of the step below
  int64_t best_step_ = -1;  // -1: no finite loss yet
  int64_t num_without_ = 0;
};

}  // namespace automodel::training
