#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "distributed/plan/unit_simulation.h"
#include "nn/activation_sizes.h"

namespace automodel::distributed {

/// Walks through a step in the order in which the engines, the model and autograd go, and keeps its
/// fullest moment. What a unit does in its turn is UnitSimulation'.
class StepWalk final {
 public:
  /// All must outlive it.
  StepWalk(const std::vector<UnitMemory>& units, const MemoryOptions& options,
           const nn::ActivationSizes& activations);

  void begin_step() { units_.begin_step(); }
  /// One micro-batch, counted from 1; the collectives that it set off.
  StepCollectives micro_batch(int64_t number, bool is_last);
  /// The optimizer's update, one unit after the other.
  void update();

  const MemoryMoment& peak() const { return units_.peak(); }

 private:
  void run_passes();
  void update_units();
  void forward(size_t i);
  void forward_without_graph(size_t i);
  void backward(size_t i);
  void embed();
  void head();
  void begin_forward(size_t i, const std::string& when);
  void run_experts_forward(size_t i, const std::string& when);
  bool is_kept_after_forward(size_t block) const;
  int64_t prefetch_depth(bool is_forward) const;
  void exchange(const SimulatedUnit& block, int64_t times, int64_t bytes);
  void reduce_in_buckets();

  const MemoryOptions& options_;
  const nn::ActivationSizes& activations_;
  UnitSimulation units_;
  MemoryMoment& now_;
  std::vector<SimulatedUnit*> blocks_;
  std::vector<SimulatedUnit*> roots_;
  SimulatedUnit* embedding_ = nullptr;  // null: part of the root
  SimulatedUnit* head_ = nullptr;       // null: part of the root
};

}  // namespace automodel::distributed
