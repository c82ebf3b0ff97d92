#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "distributed/plan/memory_options.h"
#include "distributed/plan/step_costs.h"
#include "distributed/plan/unit_memory.h"

namespace automodel::distributed {

/// The parameters of a unit of one dtype and kind, and which of their buffers have memory.
struct SimulatedFlat {
  const UnitMemory* bytes = nullptr;
  bool is_gathered = false;
  bool has_gradients = false;      ///< of this micro-batch
  bool has_accumulated = false;    ///< of the micro-batches before
  bool has_own_gradients = false;  ///< those that the optimizer reads, where they do not stay
  bool is_reduced = false;         ///< once in this step
};

struct SimulatedUnit {
  std::string name;
  std::vector<SimulatedFlat> flats = {};
  const MemoryOptions* options = nullptr;
  bool is_expert = false;
  SimulatedUnit* experts = nullptr;  ///< of a block: its experts, where they are a unit
};

/// Units' lives on numbers: what FSDPModule does with buffers and collectives, as bytes that come
/// and go and collectives that are counted. Without sharding nothing is gathered or reduced.
class UnitSimulation final {
 public:
  /// Both must outlive it.
  UnitSimulation(const std::vector<UnitMemory>& units, const MemoryOptions& options);
  UnitSimulation(const UnitSimulation&) = delete;
  UnitSimulation& operator=(const UnitSimulation&) = delete;

  /// All units, at addresses that stay.
  std::deque<SimulatedUnit>& units() { return units_; }

  /// Replicated parameters have been updated; gradients begin anew.
  void begin_step();
  /// Counts collectives anew. `is_kept`: units stay gathered after their backward; `is_synced`:
  /// their gradients are reduced then.
  void begin_micro_batch(int64_t number, bool is_kept, bool is_synced);
  /// What comes next is no micro-batch's.
  void end_micro_batches() { number_ = 0; }
  /// Whether the next backward is the last of the passes of a micro-batch.
  void set_last_backward(bool is_last) { is_last_backward_ = is_last; }

  void gather(SimulatedUnit& unit, const std::string& when);
  void release(SimulatedUnit& unit);
  /// Memory for the gradients of a backward that begins.
  void prepare_gradients(SimulatedUnit& unit);
  /// The end of a unit's backward: frees, and reduces or adds up.
  void finish_backward(SimulatedUnit& unit);
  /// Frees and reduces all units, which the ends of their backwards have left as they were.
  void finish_by_hand();
  /// Waits for the reduction under way, if there is one.
  void finish_reduction();
  /// The end of the update: gradients that do not stay are freed.
  void free_gradients();

  /// What has memory now; the walk adds activations.
  MemoryMoment& now() { return now_; }
  /// Remembers the present moment when it is the fullest so far.
  void mark(const std::string& what);
  const MemoryMoment& peak() const { return peak_; }
  StepCollectives& counts() { return counts_; }

 private:
  void allocate(bool& is_allocated, int64_t bytes, int64_t& held);
  void drop(bool& is_allocated, int64_t bytes, int64_t& held);
  void count_gather(const SimulatedUnit& unit, const UnitMemory& bytes);
  void stash(SimulatedFlat& flat);
  void allocate_own_gradients(SimulatedFlat& flat);
  void start_reduction(SimulatedUnit& unit, SimulatedFlat& flat);

  const MemoryOptions& options_;
  const MemoryOptions expert_options_;
  std::deque<SimulatedUnit> units_;
  MemoryMoment now_;
  MemoryMoment peak_;
  StepCollectives counts_;
  int64_t number_ = 0;  // of the micro-batch; 0 outside of all
  bool is_synced_ = true;
  bool is_kept_ = false;
  bool is_last_backward_ = true;
  const SimulatedUnit* pending_ = nullptr;  // whose reduction is under way
  SimulatedFlat* pending_flat_ = nullptr;
  int64_t pending_copy_ = 0;
};

}  // namespace automodel::distributed
