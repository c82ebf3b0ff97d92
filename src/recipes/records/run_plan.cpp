#include "recipes/records/run_plan.h"

#include <chrono>
#include <exception>

#include "core/error.h"

namespace automodel::recipes {

namespace {

Json reason(const char* text) {
  Json record = Json::object();
  record["reason"] = text;
  return record;
}

/// A plan is no part of a run: whatever keeps it from being made is said, and the run goes on.
Json plan_or_reason(const Recipe& recipe, const PlannedPlace& place) {
  if (!recipe.model.hf_config.is_object()) return reason("the model's config.json is not here");
  try {
    return plan_record(make_plan(recipe, place));
  } catch (const std::exception& error) {
    return reason(error.what());
  }
}

}  // namespace

Json plan_record(const RecipePlan& plan) {
  Json record = Json::object();
  record["loading_bytes"] = plan.loading_bytes();
  record["step_bytes"] = plan.step_bytes();
  record["saving_bytes"] = plan.saving_bytes();
  record["most_bytes"] = plan.most_bytes();
  record["host_bytes"] = plan.host_bytes();
  Json parts = Json::array();
  for (const PlanPart& part : plan.parts()) {
    if (part.bytes == 0) continue;
    parts.push_back(Json::Object{{"name", part.name}, {"bytes", part.bytes}});
  }
  record["parts"] = std::move(parts);
  Json not_counted = Json::array();
  for (const std::string& text : plan.not_counted) not_counted.push_back(text);
  record["not_counted"] = std::move(not_counted);
  if (plan.pipeline) record["pipeline_bubble"] = plan.pipeline->bubble;
  return record;
}

RunPlan::RunPlan(const Recipe& recipe, const PlannedPlace& place)
    : plan_(std::async(std::launch::async,
                       [&recipe, place] { return plan_or_reason(recipe, place); })) {}

std::optional<Json> RunPlan::take(double patience_seconds) {
  if (!plan_.valid()) return std::nullopt;
  const std::chrono::duration<double> patience(patience_seconds);
  if (plan_.wait_for(patience) != std::future_status::ready) return std::nullopt;
  return plan_.get();
}

std::unique_ptr<RunPlan> begin_plan(const Recipe& recipe, int world_size, at::Device device) {
  if (recipe.benchmark) return nullptr;
  return std::make_unique<RunPlan>(recipe,
                                   PlannedPlace{.world_size = world_size, .device = device});
}

}  // namespace automodel::recipes
