#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "distributed/settings/distributed_config.h"
#include "nn/parallel_plan.h"

namespace automodel::distributed {

/// The repeated layers of a language model, in forward order. The model keeps ownership. Empty for
/// a model that has none.
std::vector<torch::nn::Module*> get_lm_ac_layers(torch::nn::Module& model,
                                                 const nn::ParallelPlan& plan);

/// Activation checkpointing of whole blocks: a block keeps its input, and backward computes its
/// forward again. `kFull` keeps nothing else; `kSelective` also keeps what upstream's policy keeps:
/// the fused attention's result, and a block's first, third, fifth ... matrix product, counted from
/// 1 in the forward and again in the recomputation. `kOff` recomputes nothing.
///
/// Values and gradients equal those of plain training to the last bit: dropout is keyed by step and
/// position, not drawn from a stream. If one loss runs the blocks more than once
/// (nn/repeated_block.h), every mode adds each run's gradients to the parameters when that run has
/// been differentiated; autograd would sum the runs first, which rounds differently and holds the
/// gradients of whole layers until the last run. As upstream, blocks without trained parameters are
/// left out; a block whose input needs no gradient runs without recomputation. Returns the number
/// of blocks that recompute.
///
/// Call it before an engine installs its hooks: these then surround the recomputation, so that the
/// block's parameters are gathered for it.
int64_t recompute_blocks(torch::nn::Module& model, const nn::ParallelPlan& plan,
                         ActivationCheckpointingMode mode);

}  // namespace automodel::distributed
