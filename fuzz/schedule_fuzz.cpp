// rooms: core
// files: distributed/pipeline/schedule.cpp distributed/pipeline/schedule_csv.cpp
// A pipeline's schedule from a file. The input's first three bytes are ranks, stages a rank and
// micro-batches; the rest is the file.
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "distributed/pipeline/schedule.h"
#include "distributed/pipeline/schedule_csv.h"

namespace {

using namespace automodel;

std::string csv_of(const distributed::PipelineSchedule& schedule) {
  std::string text;
  for (const auto& actions : schedule.actions) {
    std::vector<std::string> cells;
    for (const distributed::PipelineAction& action : actions) cells.push_back(action.text());
    text += join(cells, ",") + "\n";
  }
  return text;
}

/// A schedule that is taken must be whole, and come back from its own text.
void check_taken(const distributed::PipelineSchedule& schedule) {
  const distributed::ScheduleShape& shape = schedule.shape;
  if (static_cast<int>(schedule.actions.size()) != shape.num_ranks) std::abort();
  size_t num_forwards = 0;
  for (const auto& actions : schedule.actions) {
    for (const distributed::PipelineAction& action : actions) {
      if (action.stage < 0 || action.stage >= shape.num_stages()) std::abort();
      if (action.microbatch < 0 || action.microbatch >= shape.num_microbatches) std::abort();
      num_forwards += action.op == distributed::PipelineOp::kForward ? 1 : 0;
    }
  }
  if (num_forwards != static_cast<size_t>(shape.num_stages()) * shape.num_microbatches)
    std::abort();
  const std::string text = csv_of(schedule);
  if (distributed::parse_schedule_csv(text, "again", shape).actions != schedule.actions)
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const distributed::ScheduleShape shape{1 + data[0] % 4, 1 + data[1] % 3, 1 + data[2] % 6};
  const std::string text(reinterpret_cast<const char*>(data) + 3, size - 3);
  if (distributed::count_csv_stages(text) < 0) std::abort();
  try {
    check_taken(distributed::parse_schedule_csv(text, "file", shape));
  } catch (const UserError&) {
    return 0;
  }
  return 0;
}
