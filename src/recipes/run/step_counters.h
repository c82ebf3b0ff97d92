#pragma once

#include <cstdint>
#include <optional>

#include "comm/watch/traffic.h"
#include "recipes/run/run_context.h"
#include "tensor/operator_counter.h"
#include "tensor/page_arena.h"

namespace automodel::recipes {

/// What a step takes besides time, for `run --timings`: the third step of the process, which is the
/// first that is like those after it, is counted, printed and added to the events as
/// `step_counters`. A run that ends earlier has none. Counting makes that step slower.
class StepCounters final {
 public:
  explicit StepCounters(const RunContext& context) : context_(context) {}

  /// Called right before a step's forward passes and right after its update, by the same thread.
  void begin_step();
  void end_step(int64_t step);

 private:
  struct Counting {
    tensor::OperatorCounter operators;
    tensor::TensorMemoryCounts memory;
    comm::Traffic traffic;
  };

  const RunContext& context_;
  std::optional<Counting> counting_;
  int64_t num_steps_ = 0;
};

}  // namespace automodel::recipes
