#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "distributed/pipeline/schedule.h"

namespace automodel::distributed {

/// Durations of a stage's actions in any unit. A full backward takes the time of both backwards.
struct ActionCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double transfer = 0;  ///< between the ranks of neighbouring stages
};

/// A result that is sent to another rank.
struct PipelineMessage {
  PipelineAction maker;
  int from = 0;  ///< ranks
  int to = 0;
  double made = 0;  ///< the time at which it is made
};

/// The times and messages of a simulated schedule.
struct Simulation {
  double duration = 0;              ///< of the step, from the first action to the last rank's end
  std::vector<double> busy;         ///< computing time of every rank
  std::vector<double> begin;        ///< start of every rank
  std::vector<double> end;          ///< end of every rank
  std::vector<int> peak_in_flight;  ///< most (stage, micro-batch) pairs with kept activations
  /// Messages of forward and backward in the order in which they are made. A rank can receive one
  /// once it has made its own earlier messages.
  std::vector<PipelineMessage> messages;
  std::string deadlock;  ///< "" when every rank finishes

  /// Share of the ranks' time, over the whole step, in which they wait.
  double bubble_fraction() const;
};

/// Simulates a schedule whose lists have no fault. Sends do not wait for their receivers, so the
/// only deadlocks are ranks that wait for each other in a circle; `deadlock` names it.
Simulation simulate(const PipelineSchedule& schedule, const ActionCosts& costs = {});

/// The most that a rank keeps at once if each stage keeps `kept` of a micro-batch from its forward
/// to the end of its backward.
int64_t peak_kept(const PipelineSchedule& schedule, int rank,
                  std::span<const int64_t> kept_by_stage);

/// The actions of neighbouring stages one of which must precede this action: for a forward that of
/// the previous stage; for a backward the next stage's backward, full or of the input. Empty when
/// there is no such stage.
std::vector<PipelineAction> needs_of(const PipelineAction& action, int num_stages);

}  // namespace automodel::distributed
