#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::distributed {

/// What a rank computes for one stage and one micro-batch.
enum class PipelineOp {
  kForward,
  kFullBackward,    ///< gradients of the stage's input and of its parameters
  kBackwardInput,   ///< of its input only
  kBackwardWeight,  ///< of its parameters, some time after kBackwardInput
};

struct PipelineAction {
  int stage = 0;
  PipelineOp op = PipelineOp::kForward;
  int microbatch = 0;

  /// torch's form: "2F0", "2B0", "2I0", "2W0".
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

/// The kind of a name, whatever its case. UserError with torch's text for a name it has not;
/// UnsupportedError for DualPipeV; UserError for the base classes, which are no schedules.
ScheduleKind get_schedule_class(const std::string& name);

/// Whether a rank has several stages: all but GPipe and 1F1B.
bool is_multi_stage(ScheduleKind kind);
/// Whether input and weight gradients are computed apart.
bool splits_backward(ScheduleKind kind);

struct ScheduleShape {
  int num_ranks = 1;
  int stages_per_rank = 1;
  int num_microbatches = 1;

  int num_stages() const { return num_ranks * stages_per_rank; }
};

/// Who computes what in which order. A rank begins an action when it has done those before it and
/// what the action needs has arrived.
struct PipelineSchedule {
  ScheduleKind kind = ScheduleKind::kGPipe;
  ScheduleShape shape;
  std::vector<int> rank_of_stage;
  std::vector<std::vector<PipelineAction>> actions;  ///< a list a rank

  /// The stages of a rank, ascending.
  std::vector<int> stages_of(int rank) const;
};

/// The rank of every stage: r, r + ranks, ... in a loop; there and back (0 1 1 0) under
/// ZBVZeroBubble.
std::vector<int> place_stages(ScheduleKind kind, const ScheduleShape& shape);

/// What keeps a kind from having a schedule of a shape, in torch's words; "" when nothing does.
/// `stages_per_rank` of GPipe and 1F1B is 1.
std::string schedule_finding(ScheduleKind kind, const ScheduleShape& shape);

/// torch.distributed.pipelining's order of computation, rank by rank (not of kCsv). 1F1B is made
/// for fewer micro-batches than stages too. Throws UserError with other findings.
PipelineSchedule make_schedule(ScheduleKind kind, const ScheduleShape& shape);

/// All forwards, then all backwards, under any placement of stages and any number of micro-batches:
/// what a batch that is smaller than the others gets.
PipelineSchedule make_plain_schedule(ScheduleKind kind, const ScheduleShape& shape,
                                     std::vector<int> rank_of_stage);

}  // namespace automodel::distributed
