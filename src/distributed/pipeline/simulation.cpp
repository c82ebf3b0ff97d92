#include "distributed/pipeline/simulation.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "core/error.h"
#include "core/text.h"

namespace automodel::distributed {

namespace {

constexpr double kNever = -1;

class Clock final {
 public:
  Clock(const PipelineSchedule& schedule, const ActionCosts& costs)
      : schedule_(schedule), costs_(costs), next_(schedule.actions.size(), 0) {
    const size_t ranks = schedule.actions.size();
    result_.busy.assign(ranks, 0);
    result_.begin.assign(ranks, 0);
    result_.end.assign(ranks, 0);
    result_.peak_in_flight.assign(ranks, 0);
    in_flight_.assign(ranks, 0);
    ends_.assign(static_cast<size_t>(num_stages() * schedule.shape.num_microbatches) * 4, kNever);
  }

  Simulation run() {
    bool moves = true;
    while (moves) {
      moves = false;
      for (size_t rank = 0; rank < next_.size(); ++rank) {
        while (advance(rank)) moves = true;
      }
    }
    std::stable_sort(result_.messages.begin(), result_.messages.end(),
                     [](const PipelineMessage& a, const PipelineMessage& b) {
                       return std::tie(a.made, a.from, a.to) < std::tie(b.made, b.from, b.to);
                     });
    result_.deadlock = find_circle();
    for (const double end : result_.end) result_.duration = std::max(result_.duration, end);
    return std::move(result_);
  }

 private:
  int num_stages() const { return schedule_.shape.num_stages(); }
  int rank_of(int stage) const { return schedule_.rank_of_stage[static_cast<size_t>(stage)]; }

  /// The time at which an action ended on its rank; kNever before that.
  double& end_of(const PipelineAction& action) {
    const int place = (action.stage * schedule_.shape.num_microbatches + action.microbatch) * 4;
    return ends_[static_cast<size_t>(place + static_cast<int>(action.op))];
  }

  double cost(PipelineOp op) const {
    switch (op) {
      case PipelineOp::kForward:
        return costs_.forward;
      case PipelineOp::kFullBackward:
        return costs_.backward_input + costs_.backward_weight;
      case PipelineOp::kBackwardInput:
        return costs_.backward_input;
      case PipelineOp::kBackwardWeight:
        return costs_.backward_weight;
    }
    AM_CHECK(false);
  }

  /// Runs a rank's next action if what it needs has been made; returns false if not, or at the end.
  bool advance(size_t rank) {
    const auto& actions = schedule_.actions[rank];
    if (next_[rank] == actions.size()) return false;
    const PipelineAction& action = actions[next_[rank]];
    double begin = result_.end[rank];
    const std::vector<PipelineAction> needs = needs_of(action, num_stages());
    if (!needs.empty()) {
      const auto made = std::find_if(needs.begin(), needs.end(), [&](const PipelineAction& need) {
        return end_of(need) != kNever;
      });
      if (made == needs.end()) return false;
      const bool is_received = rank_of(made->stage) != static_cast<int>(rank);
      begin = std::max(begin, end_of(*made) + (is_received ? costs_.transfer : 0));
      if (is_received) {
        result_.messages.push_back(
            {*made, rank_of(made->stage), static_cast<int>(rank), end_of(*made)});
      }
    }
    if (next_[rank] == 0) result_.begin[rank] = begin;
    const double end = begin + cost(action.op);
    end_of(action) = end;
    result_.end[rank] = end;
    result_.busy[rank] += end - begin;
    next_[rank] += 1;
    if (action.op == PipelineOp::kForward) in_flight_[rank] += 1;
    result_.peak_in_flight[rank] = std::max(result_.peak_in_flight[rank], in_flight_[rank]);
    const bool is_released =
        action.op == PipelineOp::kFullBackward || action.op == PipelineOp::kBackwardWeight;
    if (is_released) in_flight_[rank] -= 1;
    return true;
  }

  /// Describes which ranks wait for each other, beginning at the first unfinished one.
  std::string find_circle() const {
    std::vector<std::string> waits;
    std::vector<bool> is_told(next_.size(), false);
    for (size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] == schedule_.actions[rank].size()) continue;
      for (size_t at = rank; !is_told[at];) {
        is_told[at] = true;
        const PipelineAction& action = schedule_.actions[at][next_[at]];
        const std::vector<PipelineAction> needs = needs_of(action, num_stages());
        const auto maker = static_cast<size_t>(rank_of(needs.front().stage));
        waits.push_back(cat("rank ", at, " waits before ", action.text(), " (its action ",
                            next_[at] + 1, ") for ", needs.front().text(), " of rank ", maker));
        at = maker;
      }
      return join(waits, "; ");
    }
    return "";
  }

  const PipelineSchedule& schedule_;
  ActionCosts costs_;
  std::vector<size_t> next_;
  std::vector<int> in_flight_;
  std::vector<double> ends_;
  Simulation result_;
};

}  // namespace

std::vector<PipelineAction> needs_of(const PipelineAction& action, int num_stages) {
  if (action.op == PipelineOp::kForward) {
    if (action.stage == 0) return {};
    return {{action.stage - 1, PipelineOp::kForward, action.microbatch}};
  }
  const bool takes_gradient =
      action.op != PipelineOp::kBackwardWeight && action.stage + 1 < num_stages;
  if (!takes_gradient) return {};
  return {{action.stage + 1, PipelineOp::kFullBackward, action.microbatch},
          {action.stage + 1, PipelineOp::kBackwardInput, action.microbatch}};
}

int64_t peak_kept(const PipelineSchedule& schedule, int rank,
                  std::span<const int64_t> kept_by_stage) {
  int64_t kept = 0;
  int64_t peak = 0;
  for (const PipelineAction& action : schedule.actions[static_cast<size_t>(rank)]) {
    const int64_t size = kept_by_stage[static_cast<size_t>(action.stage)];
    if (action.op == PipelineOp::kForward) kept += size;
    peak = std::max(peak, kept);
    const bool is_released =
        action.op == PipelineOp::kFullBackward || action.op == PipelineOp::kBackwardWeight;
    if (is_released) kept -= size;
  }
  return peak;
}

double Simulation::bubble_fraction() const {
  const double total = duration * static_cast<double>(busy.size());
  return total == 0 ? 0 : 1.0 - std::accumulate(busy.begin(), busy.end(), 0.0) / total;
}

Simulation simulate(const PipelineSchedule& schedule, const ActionCosts& costs) {
  return Clock(schedule, costs).run();
}

}  // namespace automodel::distributed
