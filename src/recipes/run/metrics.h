#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/json.h"
#include "models/flops.h"
#include "recipes/read/recipe.h"
#include "recipes/run/run_context.h"
#include "recipes/run/session_model.h"
#include "tensor/batch.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// Returns the peak memory use in bytes.
using MemoryGauge = std::function<uint64_t()>;

/// Makes records of steps, with rates since the last record or restart(), memory and MFU.
class StepMeter final {
 public:
  /// `peak_tflops`: of one device; without it MFU is null.
  StepMeter(int64_t world_size, std::optional<double> peak_tflops, MemoryGauge peak_bytes);

  /// Restarts the time of the next record, so that validation and saving do not count in it.
  void restart();

  uint64_t peak_bytes() const { return peak_bytes_(); }

  /// A training record with upstream's keys; `flops`: operations of the whole step on all ranks.
  Json record(const training::StepResult& result, int64_t step, int64_t epoch, double flops);

  /// A validation record with upstream's keys.
  Json validation_record(const training::TrainStep::Evaluation& result, double lr, int64_t step,
                         int64_t epoch) const;

 private:
  int64_t world_size_;
  std::optional<double> peak_tflops_;
  MemoryGauge peak_bytes_;
  double last_seconds_;
};

/// Counts the floating-point operations of steps on all ranks, as upstream does.
class StepOperations final {
 public:
  /// `num_readers`: ranks that read different data.
  StepOperations(const Recipe& recipe, const SessionModel& model, int64_t num_readers);

  /// Assumes that the batches of every rank have the shapes of these.
  double of(const std::vector<tensor::Batch>& batches) const;

 private:
  models::FlopCount count_;
  double factor_;  // ranks, and the share of the operations that is computed
};

/// Peak TFLOP/s of one of the run's devices, from the recipe or a table; absent if neither has it.
std::optional<double> peak_of(const Recipe& recipe, const RunContext& context);

/// Makes the meter of a run on its devices.
StepMeter build_step_meter(const Recipe& recipe, const RunContext& context);

}  // namespace automodel::recipes
