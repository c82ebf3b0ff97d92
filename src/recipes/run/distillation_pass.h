#pragma once

#include <memory>

#include "comm/process_group.h"
#include "nn/distillation_head.h"
#include "recipes/read/recipe.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// The student's head of a recipe that distils, in place of `plain`.
std::shared_ptr<nn::StudentLossHead> make_student_head(const DistillationPlan& plan,
                                                       const nn::LossHead& plain);

/// How a pass gives losses.
struct DistilledLosses {
  comm::ProcessGroup ranks;     ///< which share a step's labels
  bool are_plain_sums = false;  ///< not divided yet where the head computes them
};

/// `plain`, whose losses go through `head`, with upstream's keys of distillation in its records:
/// both losses in those of steps and of validation sets, kd_ratio and temperature in those of
/// steps. `plan` outlives the pass.
std::unique_ptr<training::BatchPass> make_distillation_pass(
    std::unique_ptr<training::BatchPass> plain, std::shared_ptr<nn::StudentLossHead> head,
    const DistillationPlan& plan, DistilledLosses losses);

}  // namespace automodel::recipes
