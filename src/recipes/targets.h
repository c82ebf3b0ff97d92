#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/registry.h"
#include "distributed/class_table.h"
#include "distributed/config.h"
#include "loss/losses.h"
#include "recipes/recipe.h"

namespace automodel::recipes {

using OptimizerMaker =
    std::function<OptimizerPlan(const config::Target& target, config::Diagnostics& diagnostics)>;
using LossMaker = std::function<loss::LossSettings(const config::Target& target,
                                                   config::Diagnostics& diagnostics)>;

/// A way to write `model._target_`.
enum class ModelTarget { kFromPretrained, kFromConfig };

/// A way to write `model.config._target_`: config.json of a folder, or the keys themselves.
enum class ModelConfigTarget { kFolder, kInline };

/// What a `collate_fn` does with samples.
enum class CollateTarget { kPad, kStack };

/// Names that choose nothing: they are right, and that is all.
struct AcceptedTarget {};

/// The names that recipes may use, each filled by one function. What a name makes is data: no name
/// can load code.
config::TargetRegistry<OptimizerMaker> optimizer_targets();
config::TargetRegistry<LossMaker> loss_targets();
config::TargetRegistry<ModelTarget> model_targets();
config::TargetRegistry<CollateTarget> collate_targets();
/// Names of `dataloader._target_`; all mean the same loader.
config::TargetRegistry<AcceptedTarget> dataloader_targets();
/// Names of `tokenizer._target_`; all read tokenizer.json.
config::TargetRegistry<AcceptedTarget> tokenizer_targets();
config::TargetRegistry<ModelConfigTarget> model_config_targets();
/// Names of the `recipe` key.
config::TargetRegistry<AcceptedTarget> recipe_targets();

/// Names of `distributed._target_`: upstream's configuration and manager classes.
config::TargetRegistry<distributed::Strategy> distributed_targets();
/// Names of `mp_policy._target_`, in `distributed` and in its `moe`.
config::TargetRegistry<AcceptedTarget> mp_policy_targets();
/// Names of `offload_policy._target_`. torch's OffloadPolicy offloads nothing.
enum class OffloadTarget { kCpu, kNothing };
config::TargetRegistry<OffloadTarget> offload_policy_targets();
/// Names of `_target_` in `distributed.pipeline` and `distributed.moe`.
config::TargetRegistry<AcceptedTarget> pipeline_targets();
config::TargetRegistry<AcceptedTarget> moe_targets();
/// Names of `lr_scheduler._target_`.
config::TargetRegistry<AcceptedTarget> lr_scheduler_targets();

/// Every name of every registry above, and the layers of models: what import_class_from_path
/// resolves.
distributed::ClassTable recipe_classes();

}  // namespace automodel::recipes
