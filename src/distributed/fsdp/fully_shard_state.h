#pragma once

// The internal state of a unit and of a tree of units; only for fully_shard*.cpp.

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "distributed/fsdp/copy_stream.h"
#include "distributed/fsdp/fully_shard.h"

namespace automodel::distributed {

/// Flat memory of the unit's parameters of one dtype and trainability.
struct FSDPModule::Flat {
  UnitParameters what;
  std::vector<at::Tensor> parameters;  // the module's parameters
  at::ScalarType computed;             // dtype of gathered parameters and their gradients
  at::ScalarType reduced;              // dtype in which gradients are summed over ranks
  FlatBuffer gathered;                 // all ranges
  OwnerMark owner;                     // of `gathered`, in which the parameters are
  FlatBuffer gathered_gradient;        // same layout; autograd adds to it
  FlatBuffer accumulated;              // sum over micro-batches, if `reduced` is not `computed`
  FlatBuffer own_gradient;             // `what.gradients`, if it is freed between steps
  bool is_stale = true;                // `gathered` lacks the latest values
  bool has_new_gradient = false;       // not yet reduced
  int64_t num_open_forwards = 0;       // forwards of the unit whose backward has not ended
  bool is_clean = true;                // `what.gradients` holds nothing yet
  std::optional<comm::Work> gathering;
  CopyStream::Mark gather_started;  // what a gather of offloaded values waits for, besides itself
  at::Tensor gather_input;
  double gather_begin = 0;
};

struct FSDPModule::Tree {
  /// A reduction under way.
  struct Pending {
    FSDPModule* unit = nullptr;
    Flat* flat = nullptr;
    at::Tensor sent;
    at::Tensor sum;
    comm::Work work;
    double begin = 0;
  };

  FSDPModule* root = nullptr;
  std::vector<FSDPModule*> units;
  CopyStream copies{at::kCPU};  // of offloaded units
  ShardingCounts counts;
  std::deque<UnitEvent> events;
  std::vector<FSDPModule*> forward_order;
  std::optional<Pending> pending;
  int forward_depth = 0;
  int graph_depth = 0;  // nested forwards under way with a graph, not counting the root's
  bool is_last_backward = true;
  bool is_in_backward = false;
  bool is_sweep_queued = false;
  bool is_backward_of_weights = false;  // it does not run inside autograd alone

  /// Ends a backward that has thrown, whose end has not come; does nothing while one is under way.
  void end_failed_backward();
  void finish_reduction();
  void add_reduced(Flat& flat, const at::Tensor& sum);
};

/// Owns a module's unit and routes the module's forward through it.
class UnitForward final : public nn::UnitBehavior {
 public:
  explicit UnitForward(std::unique_ptr<FSDPModule> unit) : unit_(std::move(unit)) {}

  nn::TensorList run(const nn::TensorList& inputs, const nn::UnitBody& body) override {
    return unit_->run(inputs, body);
  }

  FSDPModule& unit() const { return *unit_; }

 private:
  std::unique_ptr<FSDPModule> unit_;
};

}  // namespace automodel::distributed
