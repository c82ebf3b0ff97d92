#pragma once

#include <memory>

#include "comm/groups/process_group.h"
#include "nn/classifier_head.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// Wraps the pass `plain`, whose losses go through `head`, and adds upstream's keys to its records:
/// accuracy to those of steps, val_accuracy to those of validation sets, of the labels of all
/// `ranks`, which share a step's labels.
std::unique_ptr<training::BatchPass> make_classification_pass(
    std::unique_ptr<training::BatchPass> plain, std::shared_ptr<nn::ClassifierLossHead> head,
    comm::ProcessGroup ranks);

}  // namespace automodel::recipes
