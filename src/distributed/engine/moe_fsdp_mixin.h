#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "distributed/autograd/stage_backward.h"
#include "distributed/engine/engine.h"
#include "distributed/fsdp/fully_shard.h"

namespace automodel::distributed {

// How mixture-of-experts models keep their units gathered between the micro-batches of a step;
// upstream's components.moe.fsdp_mixin, its private functions without the underscore. Triples in
// comments are (is_last_backward, reshard_after_backward, requires_gradient_sync).

/// What a unit does at the end of its backward. Name all three members when setting them.
struct BackwardSwitches {
  bool is_last_backward;
  bool reshard_after_backward;
  bool requires_gradient_sync;
};

/// (F, F, F): gradients add up unreduced, parameters stay gathered.
inline constexpr BackwardSwitches kDeferredBackward{
    .is_last_backward = false, .reshard_after_backward = false, .requires_gradient_sync = false};
/// (T, T, T): gradients are reduced, parameters freed.
inline constexpr BackwardSwitches kFinalBackward{
    .is_last_backward = true, .reshard_after_backward = true, .requires_gradient_sync = true};

/// A type that has a unit's three switches.
template <typename Unit>
concept SwitchableUnit = requires(Unit& unit) {
  unit.set_is_last_backward(true);
  unit.set_reshard_after_backward(true);
  unit.set_requires_gradient_sync(true);
};

/// Sets the three switches in this order; the setters also set them in the units below.
template <SwitchableUnit Unit>
void configure_fsdp_module(Unit& unit, const BackwardSwitches& switches) {
  unit.set_is_last_backward(switches.is_last_backward);
  unit.set_reshard_after_backward(switches.reshard_after_backward);
  unit.set_requires_gradient_sync(switches.requires_gradient_sync);
}

/// The units of a model whose switches are set, without repetition: the module itself, its `model`
/// (the module, when it has none), model.embed_tokens, lm_head, the towers and projectors of other
/// modalities with all units below them, mlp.experts and moe.experts of every layer in
/// model.layers, and of mtp.layers the block and its experts. Absent modules and those that are not
/// units are skipped; the setters of `model` reach plain blocks.
std::vector<FSDPModule*> iter_fsdp_modules(torch::nn::Module& module);

/// Sets (F, F, F) on all units of iter_fsdp_modules().
void disable_fsdp_for_moe_module(torch::nn::Module& module);

/// Calls post_backward() of every unit with parameters in the unit's tree, which does nothing for
/// units without a new gradient. Returns the function that ends the tree's backward; the caller
/// calls it.
std::function<void()> run_post_backward_hooks(FSDPModule& unit);

/// Sets (T, T, T) on all units, runs the hooks of all, then ends the backward of their trees.
void run_post_backward_for_moe_module(torch::nn::Module& module);

/// For models with experts: defers gradient sync and resharding to the last backward of a step. Has
/// no state of its own. Without pipeline parallelism the two prepare calls are made around the
/// micro-batches, and the units' own hooks do the rest. For a pipeline stage that has a mixin
/// (Engine::backward_stage), patched_backward_maybe_with_nosync does both.
class MoEFSDPSyncMixin {
 public:
  virtual ~MoEFSDPSyncMixin() = default;

  /// Sets (F, F, F) on all units when the model enables FSDP optimizations; else does nothing.
  /// `pp_enabled` is ignored, as upstream: callers take care of pipelines.
  void prepare_for_grad_accumulation(bool pp_enabled = false);
  /// Sets (T, T, T), under the same condition.
  void prepare_for_final_backward(bool pp_enabled = false);

  /// The module whose iter_fsdp_modules() are set.
  virtual torch::nn::Module& synced_module() = 0;

 protected:
  /// backend.enable_fsdp_optimizations.
  virtual bool enables_fsdp_optimizations() const = 0;
};

/// The arguments of a backward: a micro-batch's graph in a stage, or for "weight" what the backward
/// of the input left.
struct BackwardArguments {
  StageGraph graph;
  WeightBackward* param_groups = nullptr;
};

struct BackwardOutcome {
  at::Tensor grads;                            ///< of the stage's input; may be undefined
  std::optional<WeightBackward> param_groups;  ///< after "input": passed to its "weight"
};

/// Runs a stage's backward and what its data parallelism needs around it; the pipeline's executor
/// calls it for every backward. `backward_type` is "full", "input" or "weight"; any other throws
/// UserError "Unknown backward type: ...". `last_backward`: the stage's last before the optimizer
/// step.
///   replicas: gradients add up; during the last backward each bucket is all-reduced once, and
///     reduce_gradients() waits for it
///   a mixin: (F, F, F) on its units; after the last one run_post_backward_for_moe_module
///   a unit: (F, F, F); after the last one (T, T, T), every unit's post_backward and the end of the
///     tree's backward; with reduce_grad_per_microbatch (T, T, T) before each backward, except
///     (F, T, F) before that of an input, which has nothing to reduce
///   others: the backward alone
/// A "weight" does not pass any unit's output, so units are gathered before it and their
/// post_backward is called after it.
BackwardOutcome patched_backward_maybe_with_nosync(const BackwardStage& stage,
                                                   const std::string& backward_type,
                                                   const BackwardArguments& arguments,
                                                   bool last_backward = false);

}  // namespace automodel::distributed
