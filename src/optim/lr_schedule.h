#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "optim/options.h"

namespace automodel::optim {

/// Learning rate and weight decay as functions of the number of completed optimizer steps:
/// Megatron-LM's schedule with upstream's defaults. Pure.
class LrSchedule final {
 public:
  /// The schedule without an `lr_scheduler` section: constant.
  static LrSchedule constant(double lr, double weight_decay);

  /// `base_lr` and `base_wd` are the optimizer's; `total_steps` the steps of the run. Throws
  /// UserError with every finding of check() joined.
  LrSchedule(const LrSchedulerConfig& config, double base_lr, double base_wd, int64_t total_steps);

  /// What is wrong with a config, as {key, text}; empty when it is right.
  struct Finding {
    std::string key;
    std::string text;
  };
  static std::vector<Finding> check(const LrSchedulerConfig& config, double base_lr, double base_wd,
                                    int64_t total_steps);

  /// Keys that are given and that a schedule of the config does not read.
  static std::vector<Finding> unread(const LrSchedulerConfig& config);

  /// Learning rate after `steps` optimizer steps.
  double lr(int64_t steps) const;
  /// Weight decay after `steps` optimizer steps.
  double weight_decay(int64_t steps) const;

  /// Parameters by name, for checkpoints and for the log.
  Json state() const;
  /// Restores a schedule from its state().
  static LrSchedule from_state(const Json& state);

 private:
  /// What a config asks for, with every default in its place.
  struct Parameters {
    std::string style = "constant";
    std::string wsd_style;
    std::string wd_style = "constant";
    int64_t warmup_steps = 0;
    int64_t decay_steps = 1;
    int64_t wsd_steps = 0;
    int64_t wd_steps = 1;
    double init_lr = 0;
    double max_lr = 0;
    double min_lr = 0;
    double start_wd = 0;
    double end_wd = 0;
  };
  static Parameters parameters_of(const LrSchedulerConfig& config, double base_lr, double base_wd,
                                  int64_t total_steps);

  explicit LrSchedule(Parameters parameters) : parameters_(std::move(parameters)) {}
  double decay_coefficient(int64_t steps) const;
  double wsd_coefficient(int64_t steps) const;

  Parameters parameters_;
};

}  // namespace automodel::optim
