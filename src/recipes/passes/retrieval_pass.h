#pragma once

#include <cstdint>
#include <memory>

#include "comm/groups/process_group.h"
#include "nn/retrieval_head.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// The passages of all `ranks` for the queries of each. Where `trains_remote`, gradients of a
/// passage are the sum of those of all ranks; else each rank's queries train its own passages
/// alone.
nn::SharedPassages shared_passages(const comm::ProcessGroup& ranks, bool trains_remote);

/// Wraps the pass `plain`, whose losses go through `head`: a step's divisor counts its queries, and
/// records have upstream's keys: loss_avg_window (of so many steps of this run) and accuracy behind
/// a step's loss, val_acc1 and val_mrr behind that of a validation set, of the queries of all
/// `ranks`.
std::unique_ptr<training::BatchPass> make_retrieval_pass(
    std::unique_ptr<training::BatchPass> plain, std::shared_ptr<nn::RetrievalLossHead> head,
    int64_t window_steps, comm::ProcessGroup ranks);

}  // namespace automodel::recipes
