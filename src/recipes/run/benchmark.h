#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "comm/process_group.h"
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

/// What a benchmark measures, beside its section.
struct BenchmarkPlace {
  comm::ProcessGroup group;  ///< all ranks
  Reporter* reporter = nullptr;
  std::optional<double>
      peak_tflops;  ///< of one device, when the section does not say; absent: none
};

/// Times of the steps of a benchmark recipe: a line a step, then totals and a JSON report, in
/// upstream's words. Every rank makes one and calls the same functions: times are agreed upon.
/// Upstream's recipe: nemo_automodel/recipes/llm/benchmark.py.
class Benchmark final {
 public:
  /// `setup_seconds`: what this rank took from its start to the first step. Makes the folder of
  /// the report. Throws InputError.
  Benchmark(const Recipe& recipe, const BenchmarkPlace& place, double setup_seconds);

  /// A step that ended now, and the next one begins when this returns. `flops`: operations of all
  /// ranks; `sequence_length`: of its batches.
  void record(const training::StepResult& result, double flops, int64_t sequence_length);

  /// Totals on the console, and the report where the recipe wants it.
  void finish() const;

  /// The report; upstream's keys and, beside them, the times of the parts of a step.
  Json report() const;

 private:
  RankTimes over_ranks(double seconds) const;
  /// Percent of the peak; null when that is not known.
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
  RankTimes forward_backward_;  ///< sums over timed steps
  RankTimes update_;
};

}  // namespace automodel::recipes
