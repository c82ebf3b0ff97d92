#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <vector>

#include "core/reporter.h"
#include "distributed/config.h"
#include "distributed/engine.h"
#include "nn/parallel_plan.h"
#include "nn/unit_hook.h"
#include "tensor/key_map.h"

namespace automodel::distributed {

/// How fully sharded parameters are computed with; dtypes absent mean "as stored".
struct FullyShardedOptions {
  at::Device device = at::kCPU;
  std::optional<at::ScalarType> param_dtype;   ///< of gathered parameters and their gradients
  std::optional<at::ScalarType> reduce_dtype;  ///< in which gradients are summed over ranks
  std::optional<at::ScalarType> output_dtype;  ///< that a block's output is cast to
  bool casts_inputs = false;                   ///< a block's floating inputs go to param_dtype
  /// Blocks give their gathered parameters up between forward and backward. Absent: all but the
  /// last, which backward needs first.
  std::optional<bool> reshards_after_forward;
  bool defers_gradients = true;  ///< gradients of a step's micro-batches are reduced once, whole
  TraceSink* trace = nullptr;    ///< receives every gather and reduction; may be null
};

/// Those of a recipe's fsdp2 section; its default policy computes in bfloat16 and reduces in
/// float32. Throws UserError for an unknown dtype.
FullyShardedOptions fully_sharded_options(const FSDP2Config& config, at::Device device);

/// Those of a recipe's megatron_fsdp section at zero_dp_strategy 3: stored dtypes throughout, all
/// blocks given up after forward.
FullyShardedOptions fully_sharded_options(const MegatronFSDPConfig& config, at::Device device);

/// The data-parallel ranks, and how they share the parameters (HSDP): `shard` ranks hold one part
/// each, `replicate` ranks the same part. Without replicas `shard` is all of them.
struct ShardingGroups {
  comm::ProcessGroup all;
  comm::ProcessGroup shard;
  comm::ProcessGroup replicate;

  /// Every rank holds another part.
  static ShardingGroups of(const comm::ProcessGroup& all) {
    return {all, all, comm::ProcessGroup::solo("dp_replicate")};
  }
};

/// FSDP2 (ZeRO 3): every rank owns an equal range of every unit's flat parameters, gradients and
/// optimizer state. Units are the plan's blocks, which are gathered just before they are used in
/// forward and backward and freed after, and the root (everything else), which stays gathered
/// while a micro-batch runs. A gather fills the unit's flat buffer in place and a reduce-scatter
/// reads it in place.
///
/// The parameters of the module are views of storages that are emptied and refilled, so what
/// autograd has saved stays valid. Using a parameter outside of its unit's forward and backward is
/// an error of the caller's.
class FullySharded final : public Engine {
 public:
  /// Takes the memory of every parameter of `module` over; the plan's blocks must be
  /// nn::HookedModules. Collective over the groups.
  FullySharded(torch::nn::Module& module, const nn::ParallelPlan& plan, const tensor::KeyMap& keys,
               const ShardingGroups& groups, const FullyShardedOptions& options);
  ~FullySharded() override;

  HeldPart held_part() const override;
  void begin_micro_batch(bool is_last) override;
  void end_micro_batch() override;
  void zero_gradients() override;
  void reduce_gradients() override;
  double gradient_norm() const override;

  /// Collectives since the start, for tests and reports.
  struct Counts {
    int64_t gathers = 0;
    int64_t reductions = 0;      ///< over the shard group; each is followed by one over replicas
    int64_t gathered_bytes = 0;  ///< full size of what was gathered
    int64_t reduced_bytes = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  class Pool;
  class Buffer;
  class Behavior;
  struct Flat;
  struct Unit;

  void add_units(torch::nn::Module& module, const nn::ParallelPlan& plan,
                 const tensor::KeyMap& keys);
  Unit& unit_named(const std::string& name);
  void install_hooks(torch::nn::Module& module);
  nn::TensorList run_unit(Unit& unit, const nn::TensorList& inputs, const nn::UnitBody& body);
  void gather(Unit& unit);
  void release(Unit& unit);
  void prepare_gradients(Unit& unit);
  void finish_backward(Unit& unit);
  void reduce(Unit& unit);
  void trace(const char* what, const Unit& unit, double begin) const;

  comm::ProcessGroup shard_;
  comm::ProcessGroup replicate_;
  FullyShardedOptions options_;
  std::unique_ptr<Pool> pool_;
  std::vector<std::unique_ptr<Unit>> units_;  // in the order of their first parameters
  bool is_last_micro_batch_ = true;
  Counts counts_;
};

}  // namespace automodel::distributed
