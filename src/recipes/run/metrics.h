#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "core/json.h"
#include "recipes/read/recipe.h"
#include "recipes/run/run_context.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// The most memory used at one time, in bytes.
using MemoryGauge = std::function<uint64_t()>;

/// Turns steps into records: rates since the last record or restart(), memory, MFU.
class StepMeter final {
 public:
  /// `peak_tflops` of one device: absent gives no MFU.
  StepMeter(int64_t world_size, std::optional<double> peak_tflops, MemoryGauge peak_bytes);

  /// Begins the next record's time anew: after validation and saving, which are no step.
  void restart();

  /// Upstream's training record; `flops`: operations of the whole step on all ranks.
  Json record(const training::StepResult& result, int64_t step, int64_t epoch, double flops);

  /// Upstream's validation record.
  Json validation_record(const training::TrainStep::Evaluation& result, double lr, int64_t step,
                         int64_t epoch) const;

 private:
  int64_t world_size_;
  std::optional<double> peak_tflops_;
  MemoryGauge peak_bytes_;
  double last_seconds_;
};

/// Peak TFLOP/s of one of the run's devices, by the recipe or a table; absent where neither says.
std::optional<double> peak_of(const Recipe& recipe, const RunContext& context);

/// The meter of a run on its devices.
StepMeter build_step_meter(const Recipe& recipe, const RunContext& context);

}  // namespace automodel::recipes
