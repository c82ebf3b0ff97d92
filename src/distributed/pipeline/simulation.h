#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "distributed/pipeline/schedule.h"

namespace automodel::distributed {

/// Durations of a stage's actions in any unit. A full backward takes both backwards' time.
struct ActionCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double transfer = 0;  ///< between the ranks of neighbouring stages
};

/// A result that another rank needs.
struct PipelineMessage {
  PipelineAction maker;
  int from = 0;  ///< ranks
  int to = 0;
  double made = 0;  ///< when, by the clock
};

/// What a clock shows that runs a schedule.
struct Simulation {
  double duration = 0;              ///< of the step, from the first action to the last rank's end
  std::vector<double> busy;         ///< of every rank
  std::vector<double> begin;        ///< when every rank begins
  std::vector<double> end;          ///< when every rank ends
  std::vector<int> peak_in_flight;  ///< most (stage, micro-batch) pairs with kept activations
  /// Messages of forward and backward, in the order in which they are made. A rank that has made
  /// its own that come before one can take it.
  std::vector<PipelineMessage> messages;
  std::string deadlock;  ///< "" when every rank comes to its end

  /// Share of the ranks' time in which they wait, of the whole step.
  double bubble_fraction() const;
};

/// Runs a schedule whose lists have no fault. Sends do not wait for their receivers, so the only
/// deadlocks are orders that wait for each other in a circle; the text names it.
Simulation simulate(const PipelineSchedule& schedule, const ActionCosts& costs = {});

/// Most of what a rank keeps at once when every stage keeps so much of a micro-batch from its
/// forward to the end of its backward.
int64_t peak_kept(const PipelineSchedule& schedule, int rank,
                  std::span<const int64_t> kept_by_stage);

/// The actions one of which must be done before this one, other than those of its own stage: the
/// forward of the stage before; the backward of the stage behind, whole or of its input. Empty when
/// there is no such stage.
std::vector<PipelineAction> needs_of(const PipelineAction& action, int num_stages);

}  // namespace automodel::distributed
