#include "recipes/plan/recipe_plan.h"

#include <algorithm>

#include "recipes/plan/plan_text.h"

namespace automodel::recipes {

namespace {

/// The largest value of a number over the pipeline's ranks.
template <typename Number>
int64_t largest(const PipelinePlan& pipeline, Number number) {
  int64_t most = 0;
  for (const PipelineRankPlan& rank : pipeline.ranks) most = std::max<int64_t>(most, number(rank));
  return most;
}

}  // namespace

int64_t RecipePlan::loading_bytes() const {
  if (!pipeline) return memory.state() + memory.building + teacher_bytes();
  return largest(*pipeline,
                 [](const PipelineRankPlan& rank) { return rank.state + rank.building; });
}

int64_t RecipePlan::step_bytes() const {
  int64_t sum = 0;
  for (const PlanPart& part : parts()) sum += part.bytes;
  return sum;
}

int64_t RecipePlan::saving_bytes() const {
  if (!pipeline) return memory.state() + teacher_bytes() + background_copy;
  return largest(*pipeline, [](const PipelineRankPlan& rank) { return rank.state; });
}

int64_t RecipePlan::most_bytes() const {
  return std::max({loading_bytes(), step_bytes(), saving_bytes()});
}

int64_t RecipePlan::host_bytes() const {
  if (!pipeline) return memory.host + (teacher ? teacher->host : 0);
  return largest(*pipeline, [](const PipelineRankPlan& rank) { return rank.host; });
}

std::vector<PlanPart> RecipePlan::parts() const {
  if (pipeline) {
    const auto fullest = std::max_element(
        pipeline->ranks.begin(), pipeline->ranks.end(),
        [](const PipelineRankPlan& a, const PipelineRankPlan& b) { return a.total < b.total; });
    return {{"parameters, gradients and optimizer state", fullest->state},
            {"kept activations", fullest->kept},
            {"gradients not yet reduced", fullest->unreduced},
            {"gathered parameters and other tensors", fullest->working}};
  }
  const distributed::MemoryMoment& peak = memory.peak;
  return {{"parameters", memory.parameters},
          {"gradients", memory.kept_gradients + peak.gradients},
          {"optimizer state", memory.optimizer},
          {"gathered parameters", peak.gathered},
          {"gradients not yet reduced", peak.whole_gradients},
          {"copies for collectives", peak.casts},
          {"kept activations", peak.activations},
          {"other activations", peak.working},
          {"logits and their gradients", peak.logits},
          {kActivationsAtMost, activations_at_most},
          {"copy for background saves", background_copy},
          {"teacher", teacher_bytes()},
          {"teacher's gathered parameters", teacher ? teacher->gathered : 0}};
}

}  // namespace automodel::recipes
