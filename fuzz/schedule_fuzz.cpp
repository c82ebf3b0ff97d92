// rooms: distributed
// A pipeline's schedule as CSV; the first two bytes are its ranks and micro-batches. What is
// accepted must come back from its own text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "distributed/pipeline/schedule.h"

using namespace automodel;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const int num_stages = distributed::count_csv_stages(text);
  distributed::ScheduleShape shape;
  shape.num_ranks = 1 + (data[0] & 7);
  shape.num_microbatches = 1 + (data[1] & 7);
  shape.stages_per_rank = num_stages / shape.num_ranks;
  try {
    const auto schedule = distributed::parse_schedule_csv(text, "schedule.csv", shape);
    const std::string printed = distributed::to_csv(schedule);
    const auto again = distributed::parse_schedule_csv(printed, "printed", shape);
    if (again.actions != schedule.actions) std::abort();
  } catch (const UserError&) {
    return 0;
  }
  return 0;
}
