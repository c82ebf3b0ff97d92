#pragma once

#include <memory>

#include "comm/groups/process_group.h"
#include "nn/distillation_head.h"
#include "recipes/read/recipe.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// Makes the student's loss head of a recipe that distils, which replaces its model's head `plain`.
std::shared_ptr<nn::StudentLossHead> make_student_head(const DistillationRecipe& plan,
                                                       const nn::LossHead& plain);

/// How the losses of the pass that is wrapped become those of a step.
struct DistilledLosses {
  comm::ProcessGroup ranks;     ///< over which losses are summed; they share a step's labels
  bool are_plain_sums = false;  ///< the head's losses are not divided by the labels yet (pipelines)
};

/// Wraps the pass `plain`, whose losses go through `head`, and adds upstream's keys of distillation
/// to its records: both losses to those of steps and of validation sets, kd_ratio and temperature
/// to those of steps. `plan` outlives the pass.
std::unique_ptr<training::BatchPass> make_distillation_pass(
    std::unique_ptr<training::BatchPass> plain, std::shared_ptr<nn::StudentLossHead> head,
    const DistillationRecipe& plan, DistilledLosses losses);

}  // namespace automodel::recipes
