#pragma once

#include "config/registry.h"
#include "distributed/settings/class_table.h"
#include "distributed/settings/distributed_config.h"
#include "recipes/read/targets_simple.h"

namespace automodel::recipes {

/// The names of `distributed._target_`: upstream's configuration and manager classes.
config::TargetRegistry<distributed::Strategy> distributed_targets();
/// The names of `mp_policy._target_`, in `distributed` and in `distributed.moe`.
config::TargetRegistry<AcceptedTarget> mp_policy_targets();
/// The names of `offload_policy._target_`. torch's OffloadPolicy offloads nothing.
enum class OffloadTarget { kCpu, kNothing };
config::TargetRegistry<OffloadTarget> offload_policy_targets();
/// Names of `_target_` in `distributed.pipeline` and `distributed.moe`.
config::TargetRegistry<AcceptedTarget> pipeline_targets();
config::TargetRegistry<AcceptedTarget> moe_targets();
/// Names of `lr_scheduler._target_`.
config::TargetRegistry<AcceptedTarget> lr_scheduler_targets();
config::TargetRegistry<AcceptedTarget> peft_targets();

/// Every name of every registry, and the models' layer classes: what import_class_from_path
/// resolves.
distributed::ClassTable recipe_classes();

/// distributed::import_class_from_path in recipe_classes(): as upstream's, it takes every path that
/// a recipe may name.
distributed::ImportedClass import_class_from_path(const std::string& path);

}  // namespace automodel::recipes
