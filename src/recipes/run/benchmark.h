#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "comm/groups/process_group.h"
#include "core/json.h"
#include "core/reporter.h"
#include "recipes/read/recipe.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// The shortest and the longest time of any rank, in seconds.
struct RankTimes {
  double least = 0;
  double most = 0;
};

/// What a benchmark needs besides its section of the recipe.
struct BenchmarkPlace {
  comm::ProcessGroup group;  ///< all ranks
  Reporter* reporter = nullptr;
  std::optional<double>
      peak_tflops;  ///< of one device, used when the section names none; absent: unknown
};

/// Measures the steps of a benchmark recipe: prints a line a step, then totals, and writes a JSON
/// report, in upstream's words (nemo_automodel/recipes/llm/benchmark.py). Every rank makes one and
/// calls the same functions, since they exchange their times.
class Benchmark final {
 public:
  /// `setup_seconds`: the time from this rank's start to the first step. Makes the report's folder.
  /// Throws InputError. All ranks call it.
  Benchmark(const Recipe& recipe, const BenchmarkPlace& place, double setup_seconds);

  /// Records a step that ends at this call; the next one begins when it returns. `flops`:
  /// operations of the step on all ranks; `sequence_length`: of its batches. All ranks call it.
  void record(const training::StepResult& result, double flops, int64_t sequence_length);

  /// Prints the totals, and writes the report where the recipe names a file for it.
  void finish() const;

  /// The report: upstream's keys, and the times of the parts of a step.
  Json report() const;

 private:
  RankTimes over_ranks(double seconds) const;
  /// Percent of the devices' peak; null when the peak is unknown.
  Json utilisation(double flops, double seconds) const;
  double average_seconds() const;

  const Recipe& recipe_;
  BenchmarkPlace place_;
  std::optional<double> peak_tflops_;
  double setup_seconds_;
  double begin_seconds_;
  int64_t num_steps_ = 0;
  int64_t sequence_length_ = 0;
  double warmup_seconds_ = 0;
  double timed_seconds_ = 0;
  double timed_flops_ = 0;
  RankTimes forward_backward_;  ///< sum over the timed steps
  RankTimes update_;
};

}  // namespace automodel::recipes
