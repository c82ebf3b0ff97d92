#include "recipes/plan/teacher_plan.h"

#include <utility>

#include "distributed/plan/memory_plan.h"
#include "recipes/build/base_weights.h"
#include "recipes/build/build_engine.h"
#include "recipes/build/build_model.h"
#include "recipes/build/rank_model.h"
#include "recipes/read/read_distillation.h"

namespace automodel::recipes {

TeacherPlan plan_teacher(const Recipe& recipe, const mesh::MeshSizes& sizes, at::Device device) {
  const Recipe teacher = teacher_recipe(recipe);
  TeacherPlan plan;
  plan.dtype = storage_dtype(teacher.model);
  const auto model = build_model(teacher, plan.dtype);
  plan.architecture = model->architecture();
  for (const at::Tensor& parameter : model->parameters()) plan.num_parameters += parameter.numel();
  RankSplit split = split_for_a_rank(teacher, sizes, *model);
  distributed::MemoryOptions options =
      distributed::memory_options(teacher.distributed, sizes, device);
  options.keys = std::move(split.keys);
  if (options.sharding) {
    const distributed::PlannedUnits units = planned_units(teacher, *model);
    options.tables = units.tables;
    options.experts.modules =
        expert_ranks(teacher) > 1 ? model->parallel_plan().expert_modules : units.experts;
  }
  const auto groups = distributed::flat_parameters(*model, model->parallel_plan(), options.tables,
                                                   options.experts.modules);
  const distributed::MemoryPlan memory = distributed::plan_memory(groups, options, {});
  plan.parameters = memory.state();
  plan.gathered = memory.peak.gathered + memory.peak.casts;
  plan.host = memory.host;
  if (recipe.distillation->offloads_teacher && !device.is_cpu()) plan.host += plan.parameters;
  return plan;
}

}  // namespace automodel::recipes
