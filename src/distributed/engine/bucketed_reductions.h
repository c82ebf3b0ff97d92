#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "core/reporter.h"

namespace automodel::distributed {

/// Where a unit's gradients end in a flat buffer of them, in elements; they begin where those of
/// the unit before end.
struct GradientRun {
  size_t unit = 0;  ///< number in the order in which backward finishes the units
  int64_t end = 0;
};

/// Averages gradients over replicas in buckets, each reduced as soon as the backward of a step's
/// last micro-batch has finished the units in it. Buckets are started in the same order on every
/// rank, whatever the order in which units finish.
class BucketedReductions final {
 public:
  struct Options {
    int64_t first_bucket_bytes = int64_t{1} << 20;
    int64_t bucket_bytes = int64_t{25} << 20;
    TraceSink* trace = nullptr;  ///< receives every all-reduce; may be null
  };

  /// `num_units` units finish in the order of their numbers.
  BucketedReductions(comm::ProcessGroup group, size_t num_units, const Options& options);
  ~BucketedReductions();
  BucketedReductions(const BucketedReductions&) = delete;
  BucketedReductions& operator=(const BucketedReductions&) = delete;

  /// A flat buffer of gradients whose runs follow each other; `runs` are in rising order of units.
  void add(const at::Tensor& gradients, const std::vector<GradientRun>& runs);

  /// Has the unit's module tell when its backward has ended; its forward goes through a hook, else
  /// nothing happens. Installed after everything that computes in the module's hook.
  void watch(torch::nn::Module& module, size_t unit);

  /// Gradients that follow are (not) a step's last; buckets are started only while they are. Every
  /// forward of a unit then precedes the end of its backward.
  void begin_micro_batch(bool is_last);

  /// Before a step's last backward, when its forwards lie behind; the backward ends every unit once
  /// at most.
  void prepare_for_backward();

  /// Starts the reductions that were not.
  void start();
  /// Starts what was not, and waits for all reductions.
  void finish();

 private:
  struct State;
  class ReportsBackward;
  std::shared_ptr<State> state_;  // shared with the hooks
};

}  // namespace automodel::distributed
