#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "comm/groups/process_group.h"
#include "distributed/fsdp/gradient_check.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {

/// Which of the equal parts of the parameters a rank holds.
struct HeldPart {
  int index = 0;
  int count = 1;
  int num_holders = 1;        ///< ranks of the engine's group that hold the same part
  bool is_saved_here = true;  ///< one of the ranks that hold the same part saves it
  /// False on tensor-parallel ranks on which tensors that all of them hold whole are not saved.
  bool saves_whole_tensors = true;
  /// Whether ranks may have own_units() beside their part, which each saves itself; `index` and
  /// `count` then tell all ranks apart.
  bool has_own_units = false;
};

/// The two values of a parameter that an engine holds.
enum class ValuesOf { kParameters, kGradients };

class DataParallel;
class FSDPModule;
class MoEFSDPSyncMixin;

/// How the backward of a pipeline stage is treated (patched_backward_maybe_with_nosync): as
/// replicas (DDP), a mixin or a unit, whichever is set first in this order, or as none of them.
struct BackwardStage {
  DataParallel* replicas = nullptr;
  MoEFSDPSyncMixin* mixin = nullptr;
  FSDPModule* unit = nullptr;
  bool reduce_grad_per_microbatch = false;  ///< of a unit: set when defer_fsdp_grad_sync is false
};

/// Owns the memory of a module's parameters and gradients and keeps the ranks of a data-parallel
/// group in agreement. Optimizers, clipping, loading and saving work on its shards only. Every rank
/// of the group calls every function, in the same order.
class Engine {
 public:
  virtual ~Engine() = default;

  /// All parameters, one shard per unit, dtype and kind, for initialising, loading and saving.
  const std::vector<tensor::FlatShard>& parameters() const { return parameters_; }
  /// The trained parameters and their gradients, in shards with equal units, segments and offsets.
  const std::vector<tensor::FlatShard>& trained() const { return trained_; }
  const std::vector<tensor::FlatShard>& gradients() const { return gradients_; }

  /// Elements of the module's parameters (or of the trained ones); parts on several ranks count
  /// once.
  int64_t num_parameters() const { return num_parameters_; }
  int64_t num_trained_parameters() const { return num_trained_parameters_; }

  /// Replicas all hold the one part; ranks of a sharded group hold one part each.
  virtual HeldPart held_part() const = 0;

  /// Units (FlatShard::unit) of which no other rank, not even a replica or tensor-parallel rank,
  /// holds any element: experts that are split over ranks.
  const std::set<std::string>& own_units() const { return own_units_; }

  /// Called before the forward of a micro-batch or validation batch. `is_last`: of the step.
  virtual void begin_micro_batch(bool is_last) = 0;
  /// Called after its backward, or in validation after its forward.
  virtual void end_micro_batch() = 0;

  /// What a pipeline's backwards pass to patched_backward_maybe_with_nosync. Pipelines mix the
  /// forwards and backwards of micro-batches, so they do not make the two calls above.
  virtual BackwardStage backward_stage() { return {}; }

  /// Called after parameters() were written, by an optimizer's step or by loading.
  virtual void parameters_changed() {}

  /// Ends the use of a step's gradients: those of the next one add up from zero. Where gradients
  /// have memory only from backward on, gradients() cannot be read until the next
  /// reduce_gradients().
  virtual void zero_gradients() = 0;
  /// Gives gradients memory that stays in its place from now on, as recorded steps need it. Engines
  /// of one rank do, others may not.
  virtual void keep_gradients() {}
  /// Averages gradients over the group, after the last micro-batch.
  virtual void reduce_gradients() = 0;
  /// Norm of all ranks' gradients, in float64.
  virtual double gradient_norm() const = 0;
  /// Which check of the reduced gradients the strategy asks the training step for.
  virtual GradientCheck gradient_check() const { return GradientCheck::kNone; }
  /// Names of parameters that are not finite on some rank, or whose reduced gradients are not,
  /// sorted, without repetition.
  virtual std::vector<std::string> non_finite(ValuesOf values) const;

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

/// The names of all ranks of a group, sorted, without repetition; a name has no line break.
/// Collective.
std::vector<std::string> union_over(const comm::ProcessGroup& group,
                                    const std::vector<std::string>& names);

}  // namespace automodel::distributed
