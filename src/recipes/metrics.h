#pragma once

#include <cstdint>
#include <optional>

#include "core/json.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// Turns steps into records: rates since the last record or restart(), memory, MFU.
class StepMeter final {
 public:
  /// `peak_tflops` of one device: absent gives no MFU.
  StepMeter(int64_t world_size, std::optional<double> peak_tflops);

  /// Begins the next record's time anew: after validation and saving, which are no step.
  void restart();

  /// Upstream's training record; `flops`: operations of the whole step on all ranks.
  Json record(const training::StepResult& result, int64_t step, int64_t epoch, double flops);

 private:
  int64_t world_size_;
  std::optional<double> peak_tflops_;
  double last_seconds_;
};

/// Upstream's validation record.
Json validation_record(double loss, int64_t num_label_tokens, double lr, int64_t step,
                       int64_t epoch);

}  // namespace automodel::recipes
