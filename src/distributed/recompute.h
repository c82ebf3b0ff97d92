#pragma once

#include <torch/nn/module.h>

#include "nn/parallel_plan.h"

namespace automodel::distributed {

/// Activation checkpointing of whole blocks (upstream's mode `full`): a block keeps its inputs only
/// and computes its forward again in backward. Values are the same to the last bit: dropout is
/// keyed by step and position, not drawn from a stream. A block whose inputs carry no gradient runs
/// as before.
///
/// Installed before an engine's hooks, which then lie around it: the block's parameters are there
/// when it is recomputed.
void recompute_blocks(torch::nn::Module& module, const nn::ParallelPlan& plan);

}  // namespace automodel::distributed
