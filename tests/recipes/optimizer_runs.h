#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "recipes/runs.h"

namespace automodel::test {

/// Gradients that are summed in another order, in float32.
inline constexpr double kOtherOrder = 2e-6;

/// Runs of an optimizer on a tiny Llama: six steps of several micro-batches on two ranks, with
/// checkpoints after the third and the last.
class OptimizerRuns {
 public:
  /// `target`: the optimizer's name; `more`: what its tests change besides.
  OptimizerRuns(const std::string& target, const std::vector<std::string>& more)
      : options_({cat("--optimizer._target_=", target), "--step_scheduler.ckpt_every_steps=3",
                  "--step_scheduler.global_batch_size=16", "--step_scheduler.local_batch_size=2",
                  "--dataset.path_or_dataset_id=recipes/data/gsm8k_train.jsonl",
                  "--model._target_=NeMoAutoModelForCausalLM.from_config",
                  "--model.config=configs/tiny/llama",
                  "--model.pretrained_model_name_or_path=none"}) {
    options_.insert(options_.end(), more.begin(), more.end());
  }

  /// The first of them names the optimizer.
  const std::vector<std::string>& options() const { return options_; }

  ProgramResult run_on(const Spread& spread, const std::string& folder,
                       std::vector<std::string> more = {}) const {
    more.insert(more.begin(), options_.begin(), options_.end());
    return run_program(on(spread, smoke_run(folder, more)));
  }

  /// The training records of a run that must not fail.
  std::vector<Json> records_on(const Spread& spread, const std::string& folder,
                               const std::vector<std::string>& more = {}) const {
    const ProgramResult run = run_on(spread, folder, more);
    EXPECT_EQ(run.status, 0) << run.err;
    return read_records(path_join(folder, "training.jsonl"));
  }

 private:
  std::vector<std::string> options_;
};

}  // namespace automodel::test
