#include "recipes/run/step_counters.h"

#include <utility>

#include "core/text.h"

namespace automodel::recipes {

namespace {

/// The allocations of the first step and the optimizer's of the second come once.
constexpr int64_t kNumUnlike = 2;

std::string traffic_text(const Json& traffic) {
  int64_t num_operations = 0;
  int64_t bytes = 0;
  for (const auto& [name, moved] : traffic.as_object()) {
    num_operations += moved.at("operations").as_int();
    bytes += moved.at("bytes").as_int();
  }
  if (num_operations == 0) return "";
  return cat(", ", num_operations, " operations with other ranks on ",
             format_bytes(static_cast<uint64_t>(bytes)));
}

Json traffic_between(const comm::Traffic& begin, const comm::Traffic& end) {
  Json found = Json::object();
  for (const auto& [name, moved] : end) {
    const auto before = begin.find(name);
    const comm::Moved earlier = before == begin.end() ? comm::Moved() : before->second;
    if (moved.num_operations == earlier.num_operations) continue;
    Json& kind = found[std::string(name)] = Json::object();
    kind["operations"] = moved.num_operations - earlier.num_operations;
    kind["bytes"] = moved.bytes - earlier.bytes;
  }
  return found;
}

}  // namespace

void StepCounters::begin_step() {
  if (!context_.shows_timings || num_steps_++ != kNumUnlike) return;
  counting_.emplace();
  counting_->memory = tensor::tensor_memory_counts();
  counting_->traffic = context_.traffic();
}

void StepCounters::end_step(int64_t step) {
  if (!counting_) return;
  const tensor::OperatorCounts operators = counting_->operators.counts();
  const tensor::TensorMemoryCounts memory = tensor::tensor_memory_counts();
  const auto since = [](uint64_t end, uint64_t begin) { return static_cast<int64_t>(end - begin); };
  Json fields = Json::object();
  fields["step"] = step;
  fields["operators"] = operators.num_operators;
  fields["copies"] = operators.num_copies;
  fields["copied_bytes"] = operators.copied_bytes;
  fields["host_reads"] = operators.num_host_reads;
  fields["small_pieces"] = since(memory.num_small, counting_->memory.num_small);
  fields["large_pieces"] = since(memory.num_large, counting_->memory.num_large);
  fields["mapped_pieces"] = since(memory.num_mapped, counting_->memory.num_mapped);
  fields["traffic"] = traffic_between(counting_->traffic, context_.traffic());
  counting_.reset();
  context_.reporter->info(
      cat("timings: step ", step, " takes ", operators.num_operators, " operators, ",
          operators.num_copies, " copies (",
          format_bytes(static_cast<uint64_t>(operators.copied_bytes)), "), ",
          operators.num_host_reads, " reads of a number, ", fields.at("large_pieces").as_int(),
          " pieces of memory of 64 KiB and more (", fields.at("mapped_pieces").as_int(),
          " from the system)", traffic_text(fields.at("traffic"))));
  context_.events->add("step_counters", std::move(fields));
}

}  // namespace automodel::recipes
