#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "recipes/runs.h"

namespace automodel::test {

/// A recipe of recipes/smoke that trains by diffusion.
struct DiffusionRuns {
  std::string recipe;

  std::vector<std::string> command(const std::string& folder, const Spread& spread = {}) const {
    return on(spread, {automodel_binary(), "run", source_file("recipes/smoke/" + recipe),
                       cat("--checkpoint.checkpoint_dir=", folder)});
  }

  /// The steps' records of a run that ends well.
  std::vector<Json> records(const std::string& folder, const Spread& spread = {}) const {
    const ProgramResult run = run_program(command(folder, spread));
    EXPECT_EQ(run.status, 0) << run.err;
    return read_records(path_join(folder, "training.jsonl"));
  }
};

/// expect_equal_records() of what diffusion logs.
inline void expect_equal_diffusion(const std::vector<Json>& wanted, const std::vector<Json>& found,
                                   double tolerance) {
  expect_equal_records(
      wanted, found, tolerance,
      {{"loss", "dllm_loss", "grad_norm"}, {"tokens_per_step", "supervised_tokens"}});
}

}  // namespace automodel::test
