#include "recipes/plan/teacher_plan.h"

#include "distributed/plan/memory_plan.h"
#include "recipes/build/base_weights.h"
#include "recipes/build/build_engine.h"
#include "recipes/build/build_model.h"
#include "recipes/read/read_distillation.h"

namespace automodel::recipes {

TeacherPlan plan_teacher(const Recipe& recipe, const mesh::MeshSizes& sizes, at::Device device) {
  const Recipe teacher = teacher_recipe(recipe);
  TeacherPlan plan;
  plan.dtype = storage_dtype(teacher.model);
  const auto model = build_model(teacher, plan.dtype);
  plan.architecture = model->architecture();
  for (at::Tensor& parameter : model->parameters()) {
    parameter.set_requires_grad(false);
    plan.num_parameters += parameter.numel();
  }
  distributed::MemoryOptions options =
      distributed::memory_options(teacher.distributed, sizes, device);
  if (options.sharding) {
    const distributed::PlannedUnits units = planned_units(teacher, *model);
    options.tables = units.tables;
    options.experts.modules = units.experts;
  }
  const auto groups = distributed::group_parameters(*model, model->parallel_plan(), options.tables,
                                                    options.experts.modules);
  const distributed::MemoryPlan memory = distributed::plan_memory(groups, options, {});
  plan.parameters = memory.state();
  plan.gathered = memory.peak.gathered + memory.peak.idle + memory.peak.casts;
  plan.host = memory.host;
  return plan;
}

}  // namespace automodel::recipes
