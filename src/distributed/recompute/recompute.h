#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "distributed/settings/distributed_config.h"
#include "nn/parallel_plan.h"

namespace automodel::distributed {

/// The repeated layers of a language model, in forward order: the modules themselves, which stay
/// the model's. Empty for a model that has none.
std::vector<torch::nn::Module*> get_lm_ac_layers(torch::nn::Module& model,
                                                 const nn::ParallelPlan& plan);

/// Activation checkpointing of whole blocks: a block keeps its input and computes its forward again
/// in backward. `kFull` keeps nothing else; `kSelective` also keeps what upstream's policy keeps:
/// the fused attention's result and, counted anew in the forward and in the recomputation, the
/// first, third, fifth ... matrix product of a block. `kOff` recomputes nothing.
///
/// Values and gradients are those of plain training to the last bit: dropout is keyed by step and
/// position, not drawn from a stream. Where one loss runs the blocks more than once
/// (nn/repeated_block.h), every mode adds each run's gradients to the parameters when that run has
/// been differentiated: autograd by itself would add the runs up first, in other roundings, and
/// hold the gradients of whole layers until the last one. Blocks without trained parameters are
/// left out, as upstream; a block whose input carries no gradient runs as before. Returns the
/// number of blocks that recompute.
///
/// Installed before an engine's hooks, which then lie around it: the block's parameters are there
/// when it is recomputed.
int64_t recompute_blocks(torch::nn::Module& model, const nn::ParallelPlan& plan,
                         ActivationCheckpointingMode mode);

}  // namespace automodel::distributed
