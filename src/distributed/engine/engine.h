#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "distributed/fsdp/gradient_check.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {

/// Which of the equal parts of the parameters a rank holds.
struct HeldPart {
  int index = 0;
  int count = 1;
  int num_holders = 1;        ///< ranks of the engine's group that hold the same part
  bool is_saved_here = true;  ///< of the ranks that hold the same part, one saves it
  /// False on tensor-parallel ranks that leave saving what all of them hold whole to another one.
  bool saves_whole_tensors = true;
  /// Each rank may have own_units() beside its part, and then saves them: `index` and `count` tell
  /// all ranks apart.
  bool has_own_units = false;
};

class DataParallel;
class FSDPModule;
class MoEFSDPSyncMixin;

/// A pipeline stage as its backward sees it (patched_backward_maybe_with_nosync): replicas (DDP), a
/// mixin, a unit, looked for in this order, or none of them.
struct BackwardStage {
  DataParallel* replicas = nullptr;
  MoEFSDPSyncMixin* mixin = nullptr;
  FSDPModule* unit = nullptr;
  bool reduce_grad_per_microbatch = false;  ///< of a unit: defer_fsdp_grad_sync is false
};

/// Owns the memory of a module's parameters and gradients and keeps the ranks of a data-parallel
/// group together. Optimizers, clipping, loading and saving work on its shards only. Every rank of
/// the group calls every function, in the same order.
class Engine {
 public:
  virtual ~Engine() = default;

  /// All parameters, one shard a unit, dtype and kind, for loading, initialising and saving.
  const std::vector<tensor::FlatShard>& parameters() const { return parameters_; }
  /// Those that are trained and their gradients: equal units, segments and offsets.
  const std::vector<tensor::FlatShard>& trained() const { return trained_; }
  const std::vector<tensor::FlatShard>& gradients() const { return gradients_; }

  /// Elements of the module's parameters (of trained ones), all ranks' parts counted once.
  int64_t num_parameters() const { return num_parameters_; }
  int64_t num_trained_parameters() const { return num_trained_parameters_; }

  /// One part for replicas, one a rank of a sharded group.
  virtual HeldPart held_part() const = 0;

  /// Units (FlatShard::unit) of which no other rank holds any element, replicas and tensor-parallel
  /// ranks among them: experts that are split over ranks.
  const std::set<std::string>& own_units() const { return own_units_; }

  /// Before the forward of a micro-batch (or of a validation batch). `is_last`: of the step.
  virtual void begin_micro_batch(bool is_last) = 0;
  /// After its backward (after its forward in validation).
  virtual void end_micro_batch() = 0;

  /// Where forwards and backwards of several micro-batches take turns (pipelines), the calls above
  /// are left out: each backward goes through patched_backward_maybe_with_nosync of this.
  virtual BackwardStage backward_stage() { return {}; }

  /// After somebody has written parameters(): an optimizer's step, loading.
  virtual void parameters_changed() {}

  virtual void zero_gradients() = 0;
  /// Averages gradients over the group, after the last micro-batch.
  virtual void reduce_gradients() = 0;
  /// Norm of all ranks' gradients in float64.
  virtual double gradient_norm() const = 0;
  /// What the strategy asks of the reduced gradients; the training step sees to it.
  virtual GradientCheck gradient_check() const { return GradientCheck::kNone; }
  /// Tensors whose reduced gradients are not finite on some rank, each once, sorted.
  virtual std::vector<std::string> non_finite_gradients() const;

  const comm::ProcessGroup& group() const { return group_; }

 protected:
  explicit Engine(comm::ProcessGroup group) : group_(std::move(group)) {}

  comm::ProcessGroup group_;
  std::vector<tensor::FlatShard> parameters_;
  std::vector<tensor::FlatShard> trained_;
  std::vector<tensor::FlatShard> gradients_;
  std::set<std::string> own_units_;
  int64_t num_parameters_ = 0;
  int64_t num_trained_parameters_ = 0;
};

/// The names of all ranks of a group, each once, sorted; none has a line break. Collective.
std::vector<std::string> union_over(const comm::ProcessGroup& group,
                                    const std::vector<std::string>& names);

}  // namespace automodel::distributed
