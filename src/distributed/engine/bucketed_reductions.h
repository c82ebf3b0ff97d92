#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/groups/process_group.h"
#include "core/reporter.h"

namespace automodel::distributed {

/// The end of a unit's gradients in a flat buffer, in elements; they begin where the previous
/// unit's end.
struct GradientRun {
  size_t unit = 0;  ///< number of the unit, in the order in which backward finishes units
  int64_t end = 0;
};

/// Averages gradients over replicas in buckets. In a step's last micro-batch a bucket's all-reduce
/// starts as soon as backward has finished the bucket's units. All ranks start buckets in the same
/// order, whatever the order in which units finish.
class BucketedReductions final {
 public:
  struct Options {
    int64_t first_bucket_bytes = int64_t{1} << 20;
    int64_t bucket_bytes = int64_t{25} << 20;
    TraceSink* trace = nullptr;  ///< receives every all-reduce; may be null
  };

  /// Backward finishes the `num_units` units in the order of their numbers.
  BucketedReductions(comm::ProcessGroup group, size_t num_units, const Options& options);
  ~BucketedReductions();
  BucketedReductions(const BucketedReductions&) = delete;
  BucketedReductions& operator=(const BucketedReductions&) = delete;

  /// Adds a flat buffer of gradients; `runs` cover it without gaps, in rising order of units.
  void add(const at::Tensor& gradients, const std::vector<GradientRun>& runs);

  /// Installs a hook by which the module reports the end of its backward; a module without a hook
  /// is left alone. Call it after everything else that installs hooks in the module.
  void watch(torch::nn::Module& module, size_t unit);

  /// Says whether the following gradients are the last of a step; only then are buckets started
  /// early. In the last micro-batch every forward of a unit must precede the end of its backward.
  void begin_micro_batch(bool is_last);

  /// Called before a step's last backward when all forwards have been run; that backward ends each
  /// unit at most once.
  void prepare_for_backward();

  /// Starts the reductions that have not been started.
  void start();
  /// Starts the remaining reductions and waits for all of them.
  void finish();

 private:
  struct State;
  class ReportsBackward;
  std::shared_ptr<State> state_;  // shared with the hooks
};

}  // namespace automodel::distributed
