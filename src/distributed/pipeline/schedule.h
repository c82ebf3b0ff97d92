#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::distributed {

/// An action of a rank for one stage and one micro-batch.
enum class PipelineOp {
  kForward,
  kFullBackward,    ///< gradients of the stage's input and of its parameters
  kBackwardInput,   ///< of the input only
  kBackwardWeight,  ///< of the parameters, some time after kBackwardInput
};

struct PipelineAction {
  int stage = 0;
  PipelineOp op = PipelineOp::kForward;
  int microbatch = 0;

  /// In torch's form: "2F0", "2B0", "2I0", "2W0".
  std::string text() const;
  auto operator<=>(const PipelineAction&) const = default;
};

/// The kinds of schedules, by torch's class names.
enum class ScheduleKind {
  kGPipe,
  k1F1B,
  kInterleaved1F1B,
  kLoopedBFS,
  kInterleavedZeroBubble,
  kZBVZeroBubble,
  kCsv,  ///< read from a file
};

/// "GPipe", "1F1B", ...; "CSV".
std::string_view schedule_name(ScheduleKind kind);

/// The kind with a name, ignoring case. Throws UserError with torch's text for an unknown name and
/// for base classes, which are not schedules; UnsupportedError for DualPipeV.
ScheduleKind get_schedule_class(const std::string& name);

/// Whether a rank has several stages: true of all but GPipe and 1F1B.
bool is_multi_stage(ScheduleKind kind);

struct ScheduleShape {
  int num_ranks = 1;
  int stages_per_rank = 1;
  int num_microbatches = 1;

  int num_stages() const { return num_ranks * stages_per_rank; }
};

/// The actions of every rank, in order. A rank begins an action when the previous ones are done and
/// what it needs has arrived.
struct PipelineSchedule {
  ScheduleKind kind = ScheduleKind::kGPipe;
  ScheduleShape shape;
  std::vector<int> rank_of_stage;
  std::vector<std::vector<PipelineAction>> actions;  ///< one list per rank

  /// The stages of a rank, ascending.
  std::vector<int> stages_of(int rank) const;
};

/// The rank of every stage: r, r + ranks, ... in a loop, or there and back (0 1 1 0) for
/// ZBVZeroBubble.
std::vector<int> place_stages(ScheduleKind kind, const ScheduleShape& shape);

/// Why a kind has no schedule of this shape, in torch's words; "" when it has one. GPipe and 1F1B
/// need `stages_per_rank` 1.
std::string schedule_finding(ScheduleKind kind, const ScheduleShape& shape);

/// torch.distributed.pipelining's order of computation for every rank (any kind but kCsv). Unlike
/// torch's, 1F1B also takes fewer micro-batches than stages. Throws UserError with any other
/// finding.
PipelineSchedule make_schedule(ScheduleKind kind, const ScheduleShape& shape);

/// All forwards, then all backwards, for any placement of stages and number of micro-batches; used
/// for batches that are smaller than the others.
PipelineSchedule make_plain_schedule(ScheduleKind kind, const ScheduleShape& shape,
                                     std::vector<int> rank_of_stage);

}  // namespace automodel::distributed
