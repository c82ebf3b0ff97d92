#pragma once

#include <memory>

#include "comm/process_group.h"
#include "nn/distillation_head.h"
#include "recipes/read/recipe.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// The student's head of a recipe that distils.
std::shared_ptr<nn::StudentLossHead> make_student_head(const DistillationPlan& plan);

/// `plain`, whose losses go through `head`, with upstream's keys of distillation in its records:
/// both losses in those of steps and of validation sets, kd_ratio and temperature in those of
/// steps. `ranks` share a step's labels. `plan` outlives the pass.
std::unique_ptr<training::BatchPass> make_distillation_pass(
    std::unique_ptr<training::BatchPass> plain, std::shared_ptr<nn::StudentLossHead> head,
    const DistillationPlan& plan, comm::ProcessGroup ranks);

}  // namespace automodel::recipes
