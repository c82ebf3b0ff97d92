#include "distributed/pipeline/schedule_csv.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/text.h"

namespace automodel::distributed {

namespace {

std::optional<PipelineOp> op_of(char letter) {
  switch (letter) {
    case 'F':
      return PipelineOp::kForward;
    case 'B':
      return PipelineOp::kFullBackward;
    case 'I':
      return PipelineOp::kBackwardInput;
    case 'W':
      return PipelineOp::kBackwardWeight;
    default:
      return std::nullopt;
  }
}

std::optional<int> small_number(std::string_view text) {
  constexpr int64_t kLargest = 1'000'000;
  if (text.empty() || text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
  const auto value = parse_int(text);
  if (!value || *value > kLargest) return std::nullopt;
  return static_cast<int>(*value);
}

std::optional<PipelineAction> parse_action(std::string_view text) {
  const size_t letter = text.find_first_not_of("0123456789");
  if (letter == text.npos) return std::nullopt;
  const auto stage = small_number(text.substr(0, letter));
  const auto op = op_of(text[letter]);
  const auto microbatch = small_number(text.substr(letter + 1));
  if (!stage || !op || !microbatch) return std::nullopt;
  return PipelineAction{*stage, *op, *microbatch};
}

/// The rows, with trimmed cells; empty lines at the end are dropped.
std::vector<std::vector<std::string>> cells_of(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : automodel::split(text, '\n')) {
    std::vector<std::string> cells;
    for (const std::string& cell : automodel::split(line, ',')) {
      std::string_view trimmed = trim(cell);
      if (trimmed.size() >= 2 && trimmed.front() == '"' && trimmed.back() == '"') {
        trimmed = trim(trimmed.substr(1, trimmed.size() - 2));
      }
      cells.emplace_back(trimmed);
    }
    rows.push_back(std::move(cells));
  }
  const auto is_blank = [](const std::vector<std::string>& cells) {
    return std::all_of(cells.begin(), cells.end(),
                       [](const std::string& cell) { return cell.empty(); });
  };
  while (!rows.empty() && is_blank(rows.back())) rows.pop_back();
  return rows;
}

/// The micro-batches of each of the four kinds of action of one stage.
using StageActions = std::array<std::set<int>, 4>;

class ScheduleChecker final {
 public:
  explicit ScheduleChecker(const PipelineSchedule& schedule)
      : schedule_(schedule), seen_(static_cast<size_t>(schedule.shape.num_stages())) {}

  std::string find() {
    const auto ranks = static_cast<int>(schedule_.actions.size());
    if (ranks != schedule_.shape.num_ranks) {
      return cat("Schedule has incorrect number of ranks - expected ", schedule_.shape.num_ranks,
                 ", actual ", ranks);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& actions = schedule_.actions[static_cast<size_t>(rank)];
      for (size_t step = 0; step < actions.size(); ++step) {
        const std::string fault = add(actions[step], rank);
        if (!fault.empty()) return cat("Rank ", rank, ", step ", step, ": ", fault);
      }
    }
    for (int stage = 0; stage < schedule_.shape.num_stages(); ++stage) {
      const std::string fault = count(stage);
      if (!fault.empty()) return fault;
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const auto is_here = [&](const auto& home) { return home.second == rank; };
      if (std::ranges::none_of(home_, is_here)) return cat("Rank ", rank, ": it has no stage");
    }
    return "";
  }

 private:
  std::string add(const PipelineAction& action, int rank) {
    const ScheduleShape& shape = schedule_.shape;
    if (action.stage >= shape.num_stages()) {
      return cat(action.text(), " is of a stage that there is not: the stages are 0 to ",
                 shape.num_stages() - 1);
    }
    if (action.microbatch >= shape.num_microbatches) {
      return cat(action.text(), " is of a microbatch that there is not: they are 0 to ",
                 shape.num_microbatches - 1);
    }
    const auto [home, is_new] = home_.emplace(action.stage, rank);
    if (home->second != rank) {
      return cat("Stage ", action.stage, " is assigned to both rank ", rank, " and rank ",
                 home->second);
    }
    const auto has = [&](PipelineOp op) {
      return seen_[static_cast<size_t>(action.stage)][static_cast<size_t>(op)].contains(
          action.microbatch);
    };
    const auto lacks = [&](const char* what, const char* needed) {
      return cat("Running ", what, " for stage ", action.stage, ", microbatch ", action.microbatch,
                 " without first running ", needed);
    };
    if (has(action.op)) return cat(action.text(), " is there twice");
    if (action.op == PipelineOp::kFullBackward && !has(PipelineOp::kForward)) {
      return lacks("Full Backward", "Forward");
    }
    if (action.op == PipelineOp::kBackwardInput && !has(PipelineOp::kForward)) {
      return lacks("Backward Input", "Forward");
    }
    if (action.op == PipelineOp::kBackwardWeight && !has(PipelineOp::kBackwardInput)) {
      return lacks("Backward Weight", "Backward Input");
    }
    seen_[static_cast<size_t>(action.stage)][static_cast<size_t>(action.op)].insert(
        action.microbatch);
    return "";
  }

  std::string count(int stage) const {
    const auto number = [&](PipelineOp op) {
      return static_cast<int>(seen_[static_cast<size_t>(stage)][static_cast<size_t>(op)].size());
    };
    const int wanted = schedule_.shape.num_microbatches;
    const int f = number(PipelineOp::kForward);
    const int b = number(PipelineOp::kFullBackward);
    const int i = number(PipelineOp::kBackwardInput);
    const int w = number(PipelineOp::kBackwardWeight);
    if (f != wanted) {
      return cat("Got ", f, " F microbatches for stage ", stage, ", expected ", wanted);
    }
    const std::string counts = cat("but got B=", b, ", I=", i, ", W=", w);
    if (i != w) {
      return cat("Invalid backward microbatches for stage ", stage,
                 ": I and W must have equal counts, ", counts);
    }
    if (b + i != wanted) {
      return cat("Invalid backward microbatches for stage ", stage, ": expected ", wanted,
                 " total backwards, ", counts);
    }
    return "";
  }

  const PipelineSchedule& schedule_;
  std::vector<StageActions> seen_;
  std::map<int, int> home_;
};

}  // namespace

std::string find_schedule_fault(const PipelineSchedule& schedule) {
  return ScheduleChecker(schedule).find();
}

PipelineSchedule parse_schedule_csv(const std::string& text, const std::string& source,
                                    const ScheduleShape& shape) {
  PipelineSchedule schedule{ScheduleKind::kCsv, shape, {}, {}};
  schedule.rank_of_stage.assign(static_cast<size_t>(shape.num_stages()), 0);
  for (const std::vector<std::string>& cells : cells_of(text)) {
    const auto rank = static_cast<int>(schedule.actions.size());
    std::vector<PipelineAction> actions;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (cells[i].empty()) continue;
      const auto action = parse_action(cells[i]);
      if (!action) {
        throw UserError(cat(source, ": row ", rank + 1, ", cell ", i + 1, ": '", cells[i],
                            "' is no action of the compute-only form: stage, then F, B, I or W, "
                            "then micro-batch, as in 2F0"));
      }
      actions.push_back(*action);
      if (action->stage < shape.num_stages()) {
        schedule.rank_of_stage[static_cast<size_t>(action->stage)] = rank;
      }
    }
    schedule.actions.push_back(std::move(actions));
  }
  const std::string fault = find_schedule_fault(schedule);
  if (!fault.empty()) throw UserError(cat(source, ": ", fault));
  return schedule;
}

int count_csv_stages(const std::string& text) {
  int highest = -1;
  for (const std::vector<std::string>& cells : cells_of(text)) {
    for (const std::string& cell : cells) {
      if (const auto action = parse_action(cell)) highest = std::max(highest, action->stage);
    }
  }
  return highest + 1;
}

}  // namespace automodel::distributed
