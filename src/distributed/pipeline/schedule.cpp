#include "distributed/pipeline/schedule.h"

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "core/text.h"

namespace automodel::distributed {

namespace {

using Actions = std::vector<PipelineAction>;

char op_letter(PipelineOp op) {
  switch (op) {
    case PipelineOp::kForward:
      return 'F';
    case PipelineOp::kFullBackward:
      return 'B';
    case PipelineOp::kBackwardInput:
      return 'I';
    case PipelineOp::kBackwardWeight:
      return 'W';
  }
  AM_CHECK(false);
}

Actions gpipe_actions(int rank, int num_microbatches) {
  Actions actions;
  for (int i = 0; i < num_microbatches; ++i) actions.push_back({rank, PipelineOp::kForward, i});
  for (int i = 0; i < num_microbatches; ++i) {
    actions.push_back({rank, PipelineOp::kFullBackward, i});
  }
  return actions;
}

Actions one_f_one_b_actions(int rank, const ScheduleShape& shape) {
  const int last = shape.num_microbatches;
  int forward = 0, backward = 0;
  Actions actions;
  const int warmup = std::min(shape.num_ranks - 1 - rank, last);
  while (forward < warmup) actions.push_back({rank, PipelineOp::kForward, forward++});
  while (forward < last) {
    actions.push_back({rank, PipelineOp::kForward, forward++});
    actions.push_back({rank, PipelineOp::kFullBackward, backward++});
  }
  while (backward < last) actions.push_back({rank, PipelineOp::kFullBackward, backward++});
  return actions;
}

Actions looped_actions(int rank, const ScheduleShape& shape) {
  Actions actions;
  for (int local = 0; local < shape.stages_per_rank; ++local) {
    for (int i = 0; i < shape.num_microbatches; ++i) {
      actions.push_back({local * shape.num_ranks + rank, PipelineOp::kForward, i});
    }
  }
  for (int local = shape.stages_per_rank - 1; local >= 0; --local) {
    for (int i = shape.num_microbatches - 1; i >= 0; --i) {
      actions.push_back({local * shape.num_ranks + rank, PipelineOp::kFullBackward, i});
    }
  }
  return actions;
}

int num_rounds(const ScheduleShape& shape) {
  return std::max(1, shape.num_microbatches / shape.num_ranks);
}

/// The interleaved order: micro-batches come in rounds in which each of the rank's stages takes its
/// turn; forwards run ahead of backwards by the warm-up.
class InterleavedOrder final {
 public:
  InterleavedOrder(int rank, const ScheduleShape& shape, bool is_zero_bubble)
      : rank_(rank),
        shape_(shape),
        is_zero_bubble_(is_zero_bubble),
        per_round_(shape.num_microbatches / num_rounds(shape)),
        total_(shape.stages_per_rank * shape.num_microbatches) {
    const int hops = shape.num_ranks - 1 - rank;
    warmup_ = std::min((shape.stages_per_rank - 1) * per_round_ + (is_zero_bubble ? 1 : 2) * hops,
                       total_);
  }

  Actions make() {
    for (int i = 0; i < warmup_; ++i) forward(i);
    for (int i = 0; i < total_; ++i) {
      if (warmup_ + i < total_) forward(warmup_ + i);
      backward(i);
      // Weight backwards start after as many input backwards as there are ranks before this one.
      if (is_zero_bubble_ && i >= rank_) weight(num_weights_++);
    }
    while (is_zero_bubble_ && num_weights_ < total_) weight(num_weights_++);
    return std::move(actions_);
  }

 private:
  /// The action for the i-th forward (backward) of this rank: its stage and micro-batch.
  PipelineAction at(int i, PipelineOp op) const {
    const int turn = (i / per_round_) % shape_.stages_per_rank;
    const int local = op == PipelineOp::kForward ? turn : shape_.stages_per_rank - 1 - turn;
    const int round = i / (per_round_ * shape_.stages_per_rank);
    return {local * shape_.num_ranks + rank_, op, round * per_round_ + i % per_round_};
  }

  void forward(int i) { actions_.push_back(at(i, PipelineOp::kForward)); }
  void backward(int i) {
    actions_.push_back(
        at(i, is_zero_bubble_ ? PipelineOp::kBackwardInput : PipelineOp::kFullBackward));
  }
  void weight(int i) { actions_.push_back(at(i, PipelineOp::kBackwardWeight)); }

  int rank_;
  ScheduleShape shape_;
  bool is_zero_bubble_;
  int per_round_;
  int total_;
  int warmup_;
  int num_weights_ = 0;
  Actions actions_;
};

/// The order of actions of a rank that has two stages, at both ends of a V.
class ZbvOrder final {
 public:
  ZbvOrder(int rank, const ScheduleShape& shape) : rank_(rank), shape_(shape) {
    stages_[0] = rank;
    stages_[1] = shape.num_stages() - 1 - rank;
  }

  Actions make() {
    const int ranks = shape_.num_ranks;
    // The pattern needs this many micro-batches; surplus actions are removed at the end.
    const int num_microbatches = std::max(2 * ranks - 1, shape_.num_microbatches);
    for (int i = 0; i < 2 * (ranks - rank_) - 1; ++i) forward(0);
    for (int i = 0; i < rank_; ++i) {
      forward(1);
      forward(0);
    }
    for (int i = 0; i < ranks - rank_; ++i) {
      forward(1);
      input(1);
      weight(1);
    }
    while (forwards_[1] < forwards_[0] || forwards_[0] < num_microbatches) {
      if (forwards_[0] < num_microbatches) forward(0);
      input(0);
      weight(0);
      forward(1);
      input(1);
      weight(1);
    }
    for (int i = 0; i < rank_; ++i) {
      input(0);
      input(1);
    }
    for (int i = 0; i < ranks - rank_; ++i) {
      input(0);
      weight(0);
    }
    while (weights_[1] < inputs_[1]) weight(1);
    while (weights_[0] < inputs_[0]) weight(0);
    std::erase_if(actions_, [&](const PipelineAction& action) {
      return action.microbatch >= shape_.num_microbatches;
    });
    return std::move(actions_);
  }

 private:
  void forward(int chunk) {
    actions_.push_back({stages_[chunk], PipelineOp::kForward, forwards_[chunk]++});
  }
  void input(int chunk) {
    actions_.push_back({stages_[chunk], PipelineOp::kBackwardInput, inputs_[chunk]++});
  }
  void weight(int chunk) {
    actions_.push_back({stages_[chunk], PipelineOp::kBackwardWeight, weights_[chunk]++});
  }

  int rank_;
  ScheduleShape shape_;
  int stages_[2] = {0, 0};
  int forwards_[2] = {0, 0};
  int inputs_[2] = {0, 0};
  int weights_[2] = {0, 0};
  Actions actions_;
};

Actions actions_of(ScheduleKind kind, int rank, const ScheduleShape& shape) {
  switch (kind) {
    case ScheduleKind::kGPipe:
      return gpipe_actions(rank, shape.num_microbatches);
    case ScheduleKind::k1F1B:
      return one_f_one_b_actions(rank, shape);
    case ScheduleKind::kLoopedBFS:
      return looped_actions(rank, shape);
    case ScheduleKind::kInterleaved1F1B:
      return InterleavedOrder(rank, shape, false).make();
    case ScheduleKind::kInterleavedZeroBubble:
      return InterleavedOrder(rank, shape, true).make();
    case ScheduleKind::kZBVZeroBubble:
      return ZbvOrder(rank, shape).make();
    case ScheduleKind::kCsv:
      break;
  }
  AM_CHECK(false, "a schedule of a file is read, not made");
}

constexpr std::pair<std::string_view, ScheduleKind> kSchedules[] = {
    {"1F1B", ScheduleKind::k1F1B},
    {"Interleaved1F1B", ScheduleKind::kInterleaved1F1B},
    {"GPipe", ScheduleKind::kGPipe},
    {"LoopedBFS", ScheduleKind::kLoopedBFS},
    {"InterleavedZeroBubble", ScheduleKind::kInterleavedZeroBubble},
    {"ZBVZeroBubble", ScheduleKind::kZBVZeroBubble}};

}  // namespace

std::string PipelineAction::text() const {
  return cat(stage, op_letter(op), microbatch);
}

std::string_view schedule_name(ScheduleKind kind) {
  for (const auto& [name, known] : kSchedules) {
    if (known == kind) return name;
  }
  return "CSV";
}

ScheduleKind get_schedule_class(const std::string& name) {
  const std::string wanted = to_lower(name);
  for (const auto& [known, kind] : kSchedules) {
    if (to_lower(std::string(known)) == wanted) return kind;
  }
  if (wanted == "dualpipev") {
    throw UnsupportedError(
        "DualPipeV, which overlaps forwards with backwards, is not in this "
        "version; ZBVZeroBubble places stages in the same way");
  }
  if (wanted == "pipelineschedulesingle" || wanted == "pipelineschedulemulti") {
    throw UserError(cat("'", name, "' is the base of schedules, not one that can run"));
  }
  std::vector<std::string> names;
  for (const auto& [known, kind] : kSchedules) names.emplace_back(known);
  throw UserError(cat("Unknown schedule name '", name, "'. The valid options are ",
                      join(names, ", "), did_you_mean(name, names)));
}

bool is_multi_stage(ScheduleKind kind) {
  return kind != ScheduleKind::kGPipe && kind != ScheduleKind::k1F1B;
}

std::vector<int> PipelineSchedule::stages_of(int rank) const {
  std::vector<int> stages;
  for (int stage = 0; stage < static_cast<int>(rank_of_stage.size()); ++stage) {
    if (rank_of_stage[static_cast<size_t>(stage)] == rank) stages.push_back(stage);
  }
  return stages;
}

std::vector<int> place_stages(ScheduleKind kind, const ScheduleShape& shape) {
  std::vector<int> ranks;
  for (int stage = 0; stage < shape.num_stages(); ++stage) {
    const int rank = stage % shape.num_ranks;
    const bool is_way_back =
        kind == ScheduleKind::kZBVZeroBubble && (stage / shape.num_ranks) % 2 == 1;
    ranks.push_back(is_way_back ? shape.num_ranks - 1 - rank : rank);
  }
  return ranks;
}

std::string schedule_finding(ScheduleKind kind, const ScheduleShape& shape) {
  const int rounds = num_rounds(shape);
  const bool is_uneven = shape.num_microbatches % rounds != 0;
  const auto rounds_text = [&](const char* who) {
    return cat(who,
               " requires the number of microbatches to be a multiple of the number of rounds (",
               rounds, "), but got ", shape.num_microbatches, ".");
  };
  switch (kind) {
    case ScheduleKind::k1F1B:
      if (shape.num_microbatches >= shape.num_stages()) return "";
      return cat("Number of microbatches (", shape.num_microbatches,
                 ") must be greater than or equal to the number of stages (", shape.num_stages(),
                 ").");
    case ScheduleKind::kInterleaved1F1B:
      return is_uneven ? rounds_text("Interleaved 1F1B") : "";
    case ScheduleKind::kInterleavedZeroBubble:
      return is_uneven ? rounds_text("Zero bubble") : "";
    case ScheduleKind::kZBVZeroBubble:
      if (shape.stages_per_rank == 2) return "";
      return cat("ZBV requires exactly 2 stages per rank, but got ", shape.stages_per_rank, ".");
    case ScheduleKind::kGPipe:
    case ScheduleKind::kLoopedBFS:
    case ScheduleKind::kCsv:
      return "";
  }
  AM_CHECK(false);
}

PipelineSchedule make_schedule(ScheduleKind kind, const ScheduleShape& shape) {
  const std::string finding = schedule_finding(kind, shape);
  if (!finding.empty() && kind != ScheduleKind::k1F1B) throw UserError(finding);
  PipelineSchedule schedule{kind, shape, place_stages(kind, shape), {}};
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    schedule.actions.push_back(actions_of(kind, rank, shape));
  }
  return schedule;
}

PipelineSchedule make_plain_schedule(ScheduleKind kind, const ScheduleShape& shape,
                                     std::vector<int> rank_of_stage) {
  PipelineSchedule schedule{kind, shape, std::move(rank_of_stage), {}};
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    const std::vector<int> stages = schedule.stages_of(rank);
    Actions actions;
    for (const int stage : stages) {
      for (int i = 0; i < shape.num_microbatches; ++i) {
        actions.push_back({stage, PipelineOp::kForward, i});
      }
    }
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
      for (int i = 0; i < shape.num_microbatches; ++i) {
        actions.push_back({*stage, PipelineOp::kFullBackward, i});
      }
    }
    schedule.actions.push_back(std::move(actions));
  }
  return schedule;
}

}  // namespace automodel::distributed
