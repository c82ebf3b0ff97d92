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
#include "datasets/loading/loader.h"
#include "distributed/settings/distributed_config.h"
#include "models/text_pooling.h"
#include "optim/lr_schedule.h"
#include "optim/muon.h"
#include "optim/optimizer.h"
#include "peft/peft_config.h"
#include "recipes/read/benchmark_section.h"
#include "recipes/read/dataset_recipe.h"
#include "recipes/read/distillation_section.h"
#include "recipes/read/dllm_section.h"
#include "recipes/read/freeze_section.h"
#include "recipes/read/loss_settings.h"
#include "recipes/read/qat_section.h"
#include "recipes/read/quantization_section.h"
#include "recipes/read/retrieval_section.h"
#include "recipes/read/sections.h"
#include "recipes/read/tool_call_section.h"
#include "trackers/mlflow_settings.h"
#include "trackers/tensorboard.h"
#include "trackers/wandb_settings.h"
#include "training/early_stopping.h"
#include "training/step_scheduler.h"

namespace automodel::recipes {

/// The `model` section, read.
struct ModelRecipe {
  ModelSection section;
  bool is_from_config = false;
  bool has_known_class = false;   ///< `_target_` names one that is built
  bool classifies = false;        ///< sequences; else it is a language model
  bool reads_sources = false;     ///< a language model of an encoder and a decoder
  bool makes_embeddings = false;  ///< of texts
  BiEncoderSection encoder;       ///< of a model that makes embeddings, as the next two
  models::TextPooling pooling = models::TextPooling::kMean;
  bool normalizes_embeddings = true;
  std::string source;        ///< folder or hub name of the configuration; "" when inline
  std::string folder;        ///< its folder on this machine; "" when it is not here
  config::Node source_node;  ///< the node that names it
  std::string looked_for;    ///< looked_for_text() when it is not here, for errors
  Json hf_config;            ///< the configuration with the recipe's overrides; null when not here
  bool enables_fsdp_optimizations = false;  ///< backend.enable_fsdp_optimizations
  bool has_fake_balanced_gate = false;      ///< backend.fake_balanced_gate
  bool records_steps = false;               ///< backend.cuda_graph: true
  std::optional<at::ScalarType> dtype;      ///< storage; absent: the checkpoint's ("auto")
  config::Node node;

  /// Whether the weights are drawn at random; else they are read from the folder.
  bool draws_weights() const { return !section.load_base_model.value_or(!is_from_config); }
  /// Whether the model is made from its configuration alone: it continues from no folder's.
  bool is_new() const { return is_from_config && draws_weights(); }
};

/// The section `tool_call_eval`, read.
struct ToolCallRecipe {
  ToolCallEvalSection section;
  DatasetSection data;  ///< its traces, with the training set's tokenizer and chat template
};

/// The keys of distillation, read.
struct DistillationRecipe {
  ModelRecipe teacher;
  double kd_ratio = 0.5;
  KDLossConfig loss;
  bool offloads_teacher = false;  ///< its parameters lie in host memory between its forwards
  /// The mesh of a teacher on ranks of its own, behind the student's; absent: the student's mesh.
  std::optional<distributed::DistributedSetup> teacher_distributed;
};

/// The `optimizer` section, read.
struct OptimizerRecipe {
  std::function<std::unique_ptr<optim::Optimizer>(std::vector<tensor::FlatShard> parameters,
                                                  std::vector<tensor::FlatShard> gradients,
                                                  const optim::MatrixContext& context)>
      make;
  double lr = 0;
  double weight_decay = 0;
  std::vector<optim::ParamGroupOverride> param_group_overrides;
  /// Bytes of optimizer state per element of a parameter of that dtype.
  std::function<int64_t(at::ScalarType parameter)> state_bytes;
  /// Bytes of optimizer state of parts of tensors of that dtype, where it depends on these; absent:
  /// state_bytes.
  std::function<int64_t(std::span<const tensor::FlatSegment> segments, at::ScalarType parameter,
                        const optim::TensorRoles& roles)>
      state_bytes_of_tensors;
  /// Adam's eps where its averages have the parameters' dtype.
  std::optional<double> eps_beside_own_dtype = {};
  bool changes_matrices = false;     ///< as wholes (Muon)
  bool takes_matrices_only = false;  ///< torch.optim.Muon
  /// Weights of 16 bits are kept with more (master_weight_bits of FlashAdamW).
  bool keeps_weight_bits = false;
  bool is_paged = false;     ///< state is to lie in memory that a CUDA device pages
  int64_t border_numel = 1;  ///< where ranks' parts may begin (distributed::ShardingOptions)
  config::Node node;
};

/// A recipe with every section typed. Reading it touches no weights and no data.
struct Recipe {
  std::string class_name;
  int64_t seed = 42;
  training::StepSchedulerConfig step_scheduler;
  DistEnvSection dist_env;
  distributed::DistributedSetup distributed;
  ModelRecipe model;
  DatasetSection dataset;
  std::vector<DatasetSection> validation_datasets;
  datasets::DataloaderConfig dataloader;
  datasets::DataloaderConfig validation_dataloader;
  datasets::CollaterConfig collater;
  datasets::CollaterConfig validation_collater;
  /// How collate_fn writes queries and passages; absent: it is for other samples.
  std::optional<datasets::BiEncoderCollatorConfig> texts, validation_texts;
  double temperature = 1.0;                        ///< of the scores of embeddings
  std::optional<datasets::PackingConfig> packing;  ///< of training samples
  bool stacks = false;                             ///< collate_fn is torch's default_collate
  bool validation_stacks = false;
  LossSettings loss;
  OptimizerRecipe optimizer;
  std::optional<optim::LrSchedulerConfig> lr_scheduler;
  std::optional<peft::PeftConfig> peft;             ///< absent: every parameter is trained
  std::optional<QuantizationSection> quantization;  ///< absent: weights are not held in 4 bits
  std::optional<QatSection> qat;                    ///< absent: products round nothing
  std::optional<FreezeSection> freeze;              ///< absent: nothing is frozen
  std::optional<EmbeddingRowRepairSection> embedding_row_repair;  ///< absent: off
  std::optional<NeftuneSection> neftune;     ///< absent: no noise on embeddings
  std::optional<ToolCallRecipe> tool_calls;  ///< absent: validation asks for no tool calls
  std::optional<training::EarlyStoppingConfig> early_stopping;  ///< absent: the loss ends no run
  ClipSection clip;
  CheckpointSection checkpoint;
  MfuSection mfu;
  MoeMetricsSection moe_metrics;
  std::optional<trackers::TensorBoardConfig> tensorboard;  ///< absent: no event files
  std::optional<trackers::MlflowConfig> mlflow;            ///< absent: nothing is sent
  std::optional<trackers::WandbConfig> wandb;              ///< absent: nothing is sent or kept
  std::optional<DllmSection> dllm;                         ///< of recipes that train by diffusion
  std::optional<DistillationRecipe> distillation;          ///< of the recipe that distils
  std::optional<BenchmarkSection> benchmark;               ///< of the recipe that measures steps
  bool stops_on_non_finite = true;
  MatmulPrecision matmul_precision = MatmulPrecision::kHighest;
  bool is_frozen = false;  ///< nothing of the model is trained: a teacher's
  config::Node root;

  /// Whether no tool calls are asked for in spite of the section, under fsdp2 on several ranks.
  bool leaves_tool_calls_out(int64_t num_ranks) const {
    return tool_calls && !tool_calls->section.run_on_fsdp2 && num_ranks > 1 &&
           distributed.strategy == distributed::Strategy::kFsdp2;
  }
  /// Whether checkpoints are written while training goes on, from copies.
  bool saves_beside_training() const {
    return checkpoint.enabled && checkpoint.is_async && !benchmark;
  }
};

}  // namespace automodel::recipes
