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

// How mixture-of-experts models keep their units between the micro-batches of a step; upstream's
// components.moe.fsdp_mixin, its private functions without the underscore. Triples in comments are
// (is_last_backward, reshard_after_backward, requires_gradient_sync).

/// What a unit's backward does at its end. All three are to be named.
struct BackwardSwitches {
  bool is_last_backward;
  bool reshard_after_backward;
  bool requires_gradient_sync;
};

/// (F, F, F): gradients add up whole, parameters stay gathered.
inline constexpr BackwardSwitches kDeferredBackward{
    .is_last_backward = false, .reshard_after_backward = false, .requires_gradient_sync = false};
/// (T, T, T): gradients are reduced, parameters freed.
inline constexpr BackwardSwitches kFinalBackward{
    .is_last_backward = true, .reshard_after_backward = true, .requires_gradient_sync = true};

/// What has a unit's three switches.
template <typename Unit>
concept SwitchableUnit = requires(Unit& unit) {
  unit.set_is_last_backward(true);
  unit.set_reshard_after_backward(true);
  unit.set_requires_gradient_sync(true);
};

/// Sets the three, in this order. The setters reach the units below.
template <SwitchableUnit Unit>
void configure_fsdp_module(Unit& unit, const BackwardSwitches& switches) {
  unit.set_is_last_backward(switches.is_last_backward);
  unit.set_reshard_after_backward(switches.reshard_after_backward);
  unit.set_requires_gradient_sync(switches.requires_gradient_sync);
}

/// The units of a model whose switches are driven, each once: the module itself, its `model` (the
/// module, when it has none), model.embed_tokens, lm_head, the towers and projectors of other
/// modalities with all units below them, mlp.experts and moe.experts of every layer in
/// model.layers, and of mtp.layers the block and its experts. Modules that are absent or no units
/// are passed over; plain blocks are reached through the setters of `model`.
std::vector<FSDPModule*> iter_fsdp_modules(torch::nn::Module& module);

/// (F, F, F) on all of them.
void disable_fsdp_for_moe_module(torch::nn::Module& module);

/// post_backward() of every unit with parameters in the unit's tree. Returns what ends the tree's
/// backward, not called yet. Units without a new gradient do nothing.
std::function<void()> run_post_backward_hooks(FSDPModule& unit);

/// (T, T, T) on all units, then the hooks of all, then what ends their trees' backward.
void run_post_backward_for_moe_module(torch::nn::Module& module);

/// For models with experts: defers gradient sync and resharding to the last backward of a step.
/// Has no state of its own. A pipeline stage that has one (Engine::backward_stage) is treated by
/// patched_backward_maybe_with_nosync as its row there says.
///
/// Without pipeline parallelism the two calls go around the micro-batches and the units' own hooks
/// do the rest; with it patched_backward_maybe_with_nosync does.
class MoEFSDPSyncMixin {
 public:
  virtual ~MoEFSDPSyncMixin() = default;

  /// (F, F, F) on all units, when the model enables FSDP optimizations; else nothing. Whether there
  /// are pipeline stages is the caller's to heed, as upstream.
  void prepare_for_grad_accumulation(bool pp_enabled = false);
  /// (T, T, T), likewise.
  void prepare_for_final_backward(bool pp_enabled = false);

  /// Whose iter_fsdp_modules are driven.
  virtual torch::nn::Module& synced_module() = 0;

 protected:
  /// backend.enable_fsdp_optimizations.
  virtual bool enables_fsdp_optimizations() const = 0;
};

/// One micro-batch's graph of a stage, or, for the weights, what its input's backward has left.
struct BackwardArguments {
  StageGraph graph;
  WeightBackward* param_groups = nullptr;
};

struct BackwardOutcome {
  at::Tensor grads;                            ///< of the stage's input; may be undefined
  std::optional<WeightBackward> param_groups;  ///< after "input": for the "weight" that follows
};

/// A stage's backward and what its data parallelism wants around it; the pipeline's executor calls
/// it for every backward. `backward_type`: "full", "input", "weight"; UserError "Unknown backward
/// type: ..." for another. `last_backward`: of the stage before the optimizer step.
///   replicas: gradients add up; the last one has them all-reduced, once a bucket, which
///     reduce_gradients() waits for
///   a mixin: (F, F, F) on its units; after the last one run_post_backward_for_moe_module
///   a unit: (F, F, F); after the last one (T, T, T), every unit's post_backward and the end of the
///     tree's backward; with reduce_grad_per_microbatch (T, T, T) before each, but of the input,
///     which has nothing to reduce: (F, T, F)
///   others: the backward alone
/// A "weight" comes through no unit's output, so units are gathered for it and their post_backward
/// is run after it.
BackwardOutcome patched_backward_maybe_with_nosync(const BackwardStage& stage,
                                                   const std::string& backward_type,
                                                   const BackwardArguments& arguments,
                                                   bool last_backward = false);

}  // namespace automodel::distributed
