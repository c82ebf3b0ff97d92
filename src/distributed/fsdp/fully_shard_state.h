#pragma once

// What a unit and a tree of units are inside; for fully_shard*.cpp only.

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "distributed/fsdp/copy_stream.h"
#include "distributed/fsdp/fully_shard.h"

namespace automodel::distributed {

/// Flat memory of the unit's parameters of one dtype and kind.
struct FSDPModule::Flat {
  UnitParameters what;
  std::vector<at::Tensor> parameters;  // the module's own
  at::ScalarType computed;             // of gathered parameters and their gradients
  at::ScalarType reduced;              // in which gradients are summed
  FlatBuffer gathered;                 // all ranges
  FlatBuffer gathered_gradient;        // of the same layout, which autograd adds into
  FlatBuffer accumulated;  // micro-batches' gradients in `reduced`, where that is another dtype
  bool is_stale = true;    // `gathered` lacks the latest values
  bool has_new_gradient = false;  // that was not reduced
  int64_t num_open_forwards = 0;  // of the unit, whose backward has not ended
  bool is_clean = true;           // `what.gradients` holds nothing yet
  std::optional<comm::Work> gathering;
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
  FlatPool pool;
  CopyStream copies{at::kCPU};  // of offloaded units
  ShardingCounts counts;
  std::deque<UnitEvent> events;
  std::vector<FSDPModule*> forward_order;
  std::optional<Pending> pending;
  int forward_depth = 0;
  int graph_depth = 0;  // of units' forwards under way, but the root's, that will have a backward
  bool is_last_backward = true;
  bool is_in_backward = false;
  bool is_sweep_queued = false;

  void finish_reduction();
  void add_reduced(Flat& flat, const at::Tensor& sum);
};

/// Sends a module's forward through its unit, which it owns.
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
