#pragma once

#include <c10/core/ScalarType.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/diagnostic.h"
#include "config/node.h"
#include "core/json.h"
#include "datasets/loader.h"
#include "distributed/config.h"
#include "loss/losses.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "recipes/dataset_plan.h"
#include "recipes/dllm_section.h"
#include "recipes/sections.h"
#include "training/step_scheduler.h"

namespace automodel::recipes {

/// The `model` section, read.
struct ModelPlan {
  ModelSection section;
  bool is_from_config = false;
  std::string source;      ///< folder or hub name that the configuration comes from; "" when inline
  std::string folder;      ///< where it is on this machine; "" when it is not here
  std::string looked_for;  ///< where it is not, for errors (looked_for_text)
  Json hf_config;          ///< the configuration with the recipe's overrides; null when not here
  bool enables_fsdp_optimizations = false;  ///< backend.enable_fsdp_optimizations
  bool has_fake_balanced_gate = false;      ///< backend.fake_balanced_gate
  std::optional<at::ScalarType> dtype;      ///< storage; absent: the checkpoint's ("auto")
  config::Node node;
};

/// The `optimizer` section, read.
struct OptimizerPlan {
  std::function<std::unique_ptr<optim::Optimizer>(std::vector<tensor::FlatShard> parameters,
                                                  std::vector<tensor::FlatShard> gradients)>
      make;
  double lr = 0;
  double weight_decay = 0;
  std::vector<optim::ParamGroupOverride> param_group_overrides;
  int64_t num_states = 0;  ///< tensors of state beside each parameter
  config::Node node;
};

/// A recipe with every section typed. Reading it touches no weights and no data.
struct Recipe {
  std::string class_name;
  int64_t seed = 42;
  training::StepSchedulerConfig step_scheduler;
  DistEnvSection dist_env;
  distributed::DistributedSetup distributed;
  ModelPlan model;
  DatasetSection dataset;
  std::vector<DatasetSection> validation_datasets;
  datasets::DataloaderConfig dataloader;
  datasets::DataloaderConfig validation_dataloader;
  datasets::CollaterConfig collater;
  datasets::CollaterConfig validation_collater;
  bool stacks = false;  ///< collate_fn is torch's default_collate
  bool validation_stacks = false;
  loss::LossSettings loss;
  OptimizerPlan optimizer;
  std::optional<optim::LrSchedulerConfig> lr_scheduler;
  ClipSection clip;
  CheckpointSection checkpoint;
  MfuSection mfu;
  MoeMetricsSection moe_metrics;
  std::optional<DllmSection> dllm;  ///< of recipes that train by diffusion
  bool stops_on_non_finite = true;
  config::Node root;
};

/// Reads every section of a recipe; all findings go to `diagnostics`. Parts with errors keep their
/// defaults, so callers must stop when there are errors.
Recipe read_recipe(const config::Node& root, config::Diagnostics& diagnostics);

/// Reads the `model` section alone (part of read_recipe).
ModelPlan read_model(const config::Node& section, config::Diagnostics& diagnostics);

/// Reads the `optimizer` section alone (part of read_recipe).
OptimizerPlan read_optimizer(const config::Node& node, config::Diagnostics& diagnostics);

/// Reads the `loss_fn` section alone; null gives the default (part of read_recipe).
loss::LossSettings read_loss(const config::Node* node, config::Diagnostics& diagnostics);

/// Reads the `distributed` section alone (part of read_recipe).
distributed::DistributedSetup read_distributed(const config::Node& node,
                                               config::Diagnostics& diagnostics);

/// Reads the `dllm` section of a recipe that trains by diffusion (part of read_recipe).
DllmSection read_dllm(const config::Node& root, config::Diagnostics& diagnostics);

/// What keeps a recipe that trains by diffusion, or its model, from running (part of check_run).
void check_dllm(const Recipe& recipe, config::Diagnostics& diagnostics);

/// What keeps layers from computing by the mixed-precision policy (part of check_run).
void check_precision(const Recipe& recipe, int64_t world_size, config::Diagnostics& diagnostics);

/// How deeply check_run() looks.
struct CheckOptions {
  int64_t world_size = 1;
  bool loads_tokenizers = true;  ///< and looks at weights and checkpoints; a run does it anyway
  bool looks_at_data = true;     ///< files of datasets; tokenizers only with them
};

/// What is wrong with a recipe for a number of ranks, without weights: sizes, batch divisibility,
/// files, columns, tokenizer, model family, head counts; and what this version does not have.
void check_run(const Recipe& recipe, const CheckOptions& options, config::Diagnostics& diagnostics);

/// What is wrong with keys that name tensors of the model, and with the names, shapes and dtypes of
/// the folder's weights (part of check_run).
void check_built_model(const Recipe& recipe, bool looks_at_weights,
                       config::Diagnostics& diagnostics);

/// The fewest ranks that the recipe's mesh and batch sizes fit.
int64_t fitting_world_size(const Recipe& recipe);

/// The folder of the tokenizer of a dataset section: its own, else the model's; "" when not here.
std::string tokenizer_folder(const Recipe& recipe, const DatasetSection& section);

/// The JSON Schema of recipes.
Json recipe_schema();

/// What a dotted key means, or a UserError with a suggestion.
std::string explain(const std::string& key);

}  // namespace automodel::recipes
