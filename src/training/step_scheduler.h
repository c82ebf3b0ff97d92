#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/field.h"
#include "core/json.h"

namespace automodel::training {

/// The `step_scheduler` section; names and defaults are upstream's.
struct StepSchedulerConfig {
  int64_t global_batch_size = 32;
  int64_t local_batch_size = 1;
  std::optional<int64_t> num_epochs = 10;
  std::optional<int64_t> max_steps;
  std::optional<int64_t> ckpt_every_steps = 100;
  bool save_checkpoint_every_epoch = true;
  std::optional<int64_t> val_every_steps;
  bool validate_on_checkpoint = true;
  int64_t log_remote_every_steps = 1;
  int64_t loss_average_window_steps = 50;
  std::optional<int64_t> gc_every_steps;
  int64_t start_step = 0;
  int64_t start_epoch = 0;
  std::vector<std::string> preemption_signal = {"SIGTERM"};

  static constexpr auto fields() {
    using C = StepSchedulerConfig;
    return std::tuple{
        field("global_batch_size", &C::global_batch_size,
              "sequences per optimizer step over all data-parallel ranks")
            .above(0),
        field("local_batch_size", &C::local_batch_size,
              "sequences per micro-batch of one data-parallel rank")
            .above(0),
        field("num_epochs", &C::num_epochs,
              "passes over the training set; null: as many as max_steps takes")
            .above(0)
            .at_most(1e9),
        field("max_steps", &C::max_steps,
              "optimizer steps after which the run ends, unless num_epochs ends it before; "
              "num_epochs: null leaves max_steps alone")
            .above(0),
        field("ckpt_every_steps", &C::ckpt_every_steps,
              "steps between checkpoints; null: one epoch")
            .above(0),
        field("save_checkpoint_every_epoch", &C::save_checkpoint_every_epoch,
              "also save at the end of every epoch"),
        field("val_every_steps", &C::val_every_steps, "steps between validations").above(0),
        field("validate_on_checkpoint", &C::validate_on_checkpoint,
              "also validate before every checkpoint"),
        field("log_remote_every_steps", &C::log_remote_every_steps,
              "steps between training records that go to mlflow and wandb")
            .above(0),
        field("loss_average_window_steps", &C::loss_average_window_steps,
              "steps whose mean loss a retrieval recipe records as loss_avg_window")
            .above(0),
        field("gc_every_steps", &C::gc_every_steps, "steps between garbage collections")
            .above(0)
            .without_effect("there is no garbage collector here"),
        field("start_step", &C::start_step, "number of the first step").at_least(0),
        field("start_epoch", &C::start_epoch, "number of the first epoch").at_least(0),
        field("preemption_signal", &C::preemption_signal,
              "signal or signals after which the run saves and ends; null: none")
            .or_one()};
  }
};

/// A mistake in a config, by itself or for `dp_size` data-parallel ranks.
struct SchedulerFinding {
  std::string key;
  std::string text;
};
std::vector<SchedulerFinding> check_step_scheduler(const StepSchedulerConfig& config,
                                                   int64_t dp_size);

/// Decides when steps end, save and validate. Steps and epochs count from 0; step() is the current
/// step's number until the step's work is done.
class StepScheduler final {
 public:
  /// `num_batches`: micro-batches of one rank in one epoch, absent for an endless stream. Throws
  /// UserError for what check_step_scheduler finds, when neither `num_batches` nor max_steps bounds
  /// the run, or when the epoch is empty.
  StepScheduler(const StepSchedulerConfig& config, int64_t dp_size,
                std::optional<int64_t> num_batches);

  int64_t step() const { return step_; }
  int64_t epoch() const { return epoch_; }
  int64_t grad_accumulation_steps() const { return grad_accumulation_steps_; }
  /// Optimizer steps of one epoch; the last may have fewer micro-batches.
  std::optional<int64_t> epoch_length() const { return epoch_length_; }
  int64_t max_steps() const { return max_steps_; }
  int64_t num_epochs() const { return num_epochs_; }
  int64_t checkpoint_interval() const { return checkpoint_interval_; }

  bool is_done() const { return step_ >= max_steps_ || epoch_ >= num_epochs_; }

  /// About the current step; `ends_epoch`: it includes the epoch's last batch.
  bool is_last_step(bool ends_epoch) const;
  bool is_checkpoint_step(bool ends_epoch, bool is_preempted) const;
  bool is_validation_step(bool ends_epoch, bool is_preempted) const;

  /// Whether a checkpoint is ahead that does not end the run.
  bool saves_before_end() const;

  void advance_step() { ++step_; }
  void advance_epoch() { ++epoch_; }

  /// {"step": steps done including the current one, "epoch": the current epoch}, and "extra_steps"
  /// where an epoch was begun anew.
  Json state() const;
  void load_state(const Json& state);
  /// Goes on at an earlier step; the data go on where they are.
  void go_back_to(int64_t step) { step_ = step; }
  /// Called after load_state() when the data are others, so that what was done of this epoch (all
  /// of it: `is_over`) is no part of the epochs that are still to come.
  void begin_epoch_anew(bool is_over);

 private:
  void find_end();

  StepSchedulerConfig config_;
  int64_t grad_accumulation_steps_ = 1;
  std::optional<int64_t> epoch_length_;
  int64_t max_steps_ = 0;
  int64_t num_epochs_ = 0;
  int64_t checkpoint_interval_ = 0;
  int64_t step_ = 0;
  int64_t epoch_ = 0;
  int64_t extra_steps_ = 0;  ///< done, beyond those of whole epochs of this length
};

}  // namespace automodel::training
