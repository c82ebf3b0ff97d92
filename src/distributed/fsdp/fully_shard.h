#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/fsdp/flat_units.h"
#include "distributed/fsdp/sharding_options.h"
#include "distributed/groups/sharding_groups.h"
#include "nn/unit_hook.h"

namespace automodel::distributed {

/// Collectives of a tree of units since it was made, for tests and reports.
struct ShardingCounts {
  int64_t gathers = 0;
  int64_t reductions = 0;      ///< over the shard group; each is followed by one over replicas
  int64_t gathered_bytes = 0;  ///< full size of gathered parameters
  int64_t reduced_bytes = 0;
  int64_t copied_bytes = 0;  ///< by casts and sums of micro-batches, beside the collectives
};

/// The transitions of a unit; README.md has the picture.
enum class UnitTransition { kGather, kUnsharded, kForward, kReshard, kBackward, kReduce, kReduced };

struct UnitEvent {
  std::string_view unit;  ///< fqn below the tree's root; "" for the root
  UnitTransition what;

  /// "gather a".
  std::string text() const;
};

/// A unit's parameters of one dtype and trainability in one flat buffer, split into equal ranges of
/// which this rank holds one.
struct UnitParameters {
  FlatLayout layout;  ///< of the whole flat buffer; names relative to the unit's module
  int64_t numel = 0;  ///< of the whole buffer, without padding
  int64_t range_begin = 0;
  int64_t range_end = 0;
  bool is_trained = false;
  at::Tensor values;     ///< this rank's range; optimizers update it
  at::Tensor gradients;  ///< of the same elements; undefined when not trained
};

/// A unit: a module whose parameters are sharded. fully_shard makes it. Names and meanings of the
/// switches are torch.distributed.fsdp.FSDPModule's. Every rank of the shard group makes the calls
/// marked collective in the same order.
class FSDPModule final {
 public:
  ~FSDPModule();
  FSDPModule(const FSDPModule&) = delete;
  FSDPModule& operator=(const FSDPModule&) = delete;

  /// fqn below the root of the tree; "" for the root.
  const std::string& name() const { return name_; }
  bool is_unsharded() const;

  /// Gathers this unit's parameters (not those of units below), so that they can be read.
  /// Collective.
  void unshard();
  /// Starts unshard() without waiting; unshard() or the unit's forward waits for it.
  void start_unshard();
  /// Frees the gathered parameters; does nothing when they are replicated.
  void reshard();

  /// Whether backward reduces gradients over the ranks; if not, they add up whole on each. Set for
  /// this unit and, with `recurse`, those below.
  void set_requires_gradient_sync(bool requires_sync, bool recurse = true);
  /// Whether backward frees gathered parameters.
  void set_reshard_after_backward(bool reshards, bool recurse = true);
  void set_reshard_after_forward(bool reshards, bool recurse = true);
  /// Whether it stays gathered from a forward to the backward.
  bool keeps_after_forward() const;
  /// Whether the end of backward waits for all reductions. Set for the whole tree.
  void set_is_last_backward(bool is_last);
  /// Sets the units that are gathered when this one's forward (backward) begins, nearest first.
  void set_modules_to_forward_prefetch(std::vector<FSDPModule*> modules);
  void set_modules_to_backward_prefetch(std::vector<FSDPModule*> modules);

  bool requires_gradient_sync() const { return requires_sync_; }
  bool reshard_after_backward() const { return reshards_after_backward_; }
  bool is_last_backward() const;

  /// The end of this unit's backward: frees and reduces as the switches say. Does not reduce when
  /// there is no new gradient.
  void post_backward();
  /// The end of the tree's backward: post_backward() of all units; waits if this is the last
  /// backward.
  void root_post_backward();

  const std::vector<UnitParameters>& parameters() const { return described_; }
  /// Bytes of parameters and gradients that this unit holds now, gathered ones included.
  int64_t resting_bytes() const;
  const ShardingGroups& groups() const { return groups_; }
  const ShardingOptions& options() const { return options_; }
  /// The tree's units in the order of traversal, beginning with the root.
  std::vector<FSDPModule*> tree_units() const;
  const ShardingCounts& counts() const;
  /// The tree's last 4096 transitions since clear_events().
  std::vector<UnitEvent> events() const;
  void clear_events();

  /// Sets every gradient of this unit to zero. The memory of gradients that are sharded is freed,
  /// and allocated again by the next backward: between these UnitParameters::gradients cannot be
  /// read.
  void zero_gradients();
  /// Called after an optimizer (or a load) has written `values`: the next use gathers replicated
  /// parameters again.
  void parameters_changed();

  /// Begins a backward that does not come through the tree's outputs: gathers all units and
  /// allocates their gradients. root_post_backward() ends it. Collective.
  void begin_backward_of_weights();

 private:
  friend class ModuleSharder;
  friend class UnitForward;
  friend class UnshardedModel;
  struct Flat;
  struct Tree;

  FSDPModule(std::string type, const ShardingGroups& groups, const ShardingOptions& options);

  void take(std::vector<FlatParameters> groups);
  Flat make_flat(const FlatParameters& group) const;
  nn::TensorList run(const nn::TensorList& inputs, const nn::UnitBody& body);
  void pre_backward();
  void prefetch(const std::vector<FSDPModule*>& modules);
  void prepare_gradients();
  static void bind_gradients(Flat& flat);
  void check_trained() const;
  void allocate_missing_gradients();
  void finish_gather(Flat& flat);
  void stash(Flat& flat);
  void reduce(Flat& flat);
  void record(UnitTransition what);

  std::string name_;
  std::string type_;
  ShardingGroups groups_;
  ShardingOptions options_;
  std::shared_ptr<Tree> tree_;
  std::vector<FSDPModule*> below_;  // nested units at any depth
  std::vector<Flat> flats_;
  std::vector<UnitParameters> described_;
  std::vector<FSDPModule*> forward_prefetch_;
  std::vector<FSDPModule*> backward_prefetch_;
  bool is_held_ = false;  // by an UnshardedModel
  bool requires_sync_ = true;
  bool reshards_after_backward_ = true;
  std::optional<bool> reshards_after_forward_;
  std::function<void()> after_backward_;
};

/// Makes a unit of all parameters of `module` that no unit below has taken, and takes over their
/// memory: each rank keeps an equal range of their flat buffer. The parameters' values are kept.
/// Call it bottom-up, on the blocks first and on the whole module last, before an optimizer is
/// made. A module that already is a unit is returned unchanged.
///
/// The unit is gathered when its forward begins, freed after it (see reshard_after_forward),
/// gathered again in backward, and its gradients are reduce-scattered. Throws UserError when the
/// module is not an nn::HookedModule (which takes one line in its forward), when a unit below
/// shares a parameter or has other ranks, when a module around it is a unit already, and when the
/// groups do not fit each other. A module in two places is one unit, named as the first. Which
/// parameters are trained is settled here: changing requires_grad later makes forwards throw.
/// Reading parameters of a sharded unit throws c10::Error. Collective over the groups.
/// torch.distributed.fsdp.fully_shard.
FSDPModule& fully_shard(torch::nn::Module& module, const ShardingGroups& groups,
                        const ShardingOptions& options = {});

/// The unit of a module; null when it is not a unit.
FSDPModule* fsdp_module(const torch::nn::Module& module);

/// Whether all units of a module stay gathered between their forwards and their backwards, as with
/// reshard_after_forward: false.
bool all_keep_after_forward(const torch::nn::Module& module);

/// Gathers all units of a module for its own lifetime, to read whole parameters or to run several
/// forwards with one gather; the destructor reshards them. Has no effect on other modules.
/// Upstream's unshard_fsdp2_model. Collective.
class UnshardedModel final {
 public:
  explicit UnshardedModel(torch::nn::Module& module);
  ~UnshardedModel();
  UnshardedModel(const UnshardedModel&) = delete;
  UnshardedModel& operator=(const UnshardedModel&) = delete;

 private:
  void release();

  std::vector<FSDPModule*> units_;
};

/// Calls `body` while an UnshardedModel of the module exists; passes on exceptions of `body`.
void unshard_fsdp2_model(torch::nn::Module& module, const std::function<void()>& body);

}  // namespace automodel::distributed
