#include "training/step_scheduler.h"

#include <algorithm>
#include <limits>

#include "core/divide.h"
#include "core/error.h"

namespace automodel::training {

namespace {

constexpr const char* kExtraSteps = "extra_steps";

}  // namespace

std::vector<SchedulerFinding> check_step_scheduler(const StepSchedulerConfig& config,
                                                   int64_t dp_size) {
  std::vector<SchedulerFinding> findings;
  if (config.local_batch_size <= 0 || dp_size <= 0 || config.global_batch_size <= 0) {
    return findings;  // reported by range checks
  }
  int64_t per_round = 0;
  const bool is_beyond_numbers =
      __builtin_mul_overflow(config.local_batch_size, dp_size, &per_round);
  if (is_beyond_numbers || config.global_batch_size % per_round != 0) {
    findings.push_back(
        {"global_batch_size", cat("global_batch_size (", config.global_batch_size,
                                  ") must be divisible by local_batch_size * dp_size (",
                                  config.local_batch_size, " * ", dp_size, ")")});
  }
  return findings;
}

StepScheduler::StepScheduler(const StepSchedulerConfig& config, int64_t dp_size,
                             std::optional<int64_t> num_batches)
    : config_(config), step_(config.start_step), epoch_(config.start_epoch) {
  for (const auto& finding : check_step_scheduler(config, dp_size)) {
    throw UserError(cat("step_scheduler.", finding.key, ": ", finding.text));
  }
  grad_accumulation_steps_ = config.global_batch_size / (config.local_batch_size * dp_size);
  if (num_batches) {
    if (*num_batches == 0) {
      throw InputError(cat("the training set has fewer samples than one micro-batch of ",
                           config.local_batch_size, " on each of ", dp_size,
                           " data-parallel ranks"));
    }
    epoch_length_ = ceil_div(*num_batches, grad_accumulation_steps_);
  }
  if (!epoch_length_ && !config.max_steps) {
    throw UserError(
        "step_scheduler.max_steps: a training set without a length needs max_steps "
        "(epoch_len must be provided if max_steps is not provided)");
  }
  find_end();
  checkpoint_interval_ = config.ckpt_every_steps.value_or(
      epoch_length_ ? *epoch_length_ : std::max<int64_t>(1, max_steps_ / 2));
}

void StepScheduler::find_end() {
  if (config_.num_epochs) {
    num_epochs_ = *config_.num_epochs;
  } else if (epoch_length_ && config_.max_steps) {
    num_epochs_ = ceil_div(std::max<int64_t>(*config_.max_steps - extra_steps_, 0), *epoch_length_);
  } else {
    num_epochs_ = StepSchedulerConfig{}.num_epochs.value();
  }
  constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();
  const int64_t by_epochs =
      epoch_length_ ? num_epochs_ * *epoch_length_ + extra_steps_ : kUnbounded;
  max_steps_ = std::min(config_.max_steps.value_or(kUnbounded), by_epochs);
}

bool StepScheduler::is_last_step(bool ends_epoch) const {
  return step_ + 1 >= max_steps_ || (ends_epoch && epoch_ + 1 >= num_epochs_);
}

bool StepScheduler::is_checkpoint_step(bool ends_epoch, bool is_preempted) const {
  return step_ % checkpoint_interval_ == checkpoint_interval_ - 1 ||
         (ends_epoch && config_.save_checkpoint_every_epoch) || is_last_step(ends_epoch) ||
         is_preempted;
}

bool StepScheduler::is_validation_step(bool ends_epoch, bool is_preempted) const {
  if (is_preempted) return false;
  if (config_.val_every_steps && step_ % *config_.val_every_steps == *config_.val_every_steps - 1) {
    return true;
  }
  return config_.validate_on_checkpoint && is_checkpoint_step(ends_epoch, is_preempted);
}

bool StepScheduler::saves_before_end() const {
  const auto is_before_end = [&](int64_t interval) {
    return interval > 0 && (step_ / interval + 1) * interval < max_steps_;
  };
  return is_before_end(checkpoint_interval_) ||
         (config_.save_checkpoint_every_epoch && is_before_end(epoch_length_.value_or(0)));
}

Json StepScheduler::state() const {
  Json state = Json::object();
  state["step"] = std::min(max_steps_, step_ + 1);
  state["epoch"] = epoch_;
  if (extra_steps_ != 0) state[kExtraSteps] = extra_steps_;
  return state;
}

void StepScheduler::load_state(const Json& state) {
  step_ = state.at("step").as_int();
  epoch_ = state.at("epoch").as_int();
  extra_steps_ = state.get(kExtraSteps, int64_t{0});
  find_end();
}

void StepScheduler::begin_epoch_anew(bool is_over) {
  if (!epoch_length_) return;
  extra_steps_ = step_ - (epoch_ + (is_over ? 1 : 0)) * *epoch_length_;
  find_end();
}

}  // namespace automodel::training
