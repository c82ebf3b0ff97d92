#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/engine/sharded_engine.h"
#include "distributed/fill_by_name.h"
#include "distributed/groups/device_mesh.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/pipeline/executor.h"
#include "distributed/pipeline/stage_split.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "support/program.h"
#include "tensor/random.h"

namespace automodel::distributed {

/// The config of a model of tests/golden with an untied head and this many layers.
inline Json untied_config(const std::string& golden, int num_layers) {
  Json config = Json::parse_file(test::source_file(cat("tests/golden/", golden, "/config.json")));
  config["tie_word_embeddings"] = false;
  config[config.find("n_layer") != nullptr ? "n_layer" : "num_hidden_layers"] = num_layers;
  if (const Json* types = config.find("layer_types"); types != nullptr && types->is_array()) {
    Json longer = Json::array();
    for (int i = 0; i < num_layers; ++i) {
      longer.push_back(types->as_array()[static_cast<size_t>(i) % types->size()]);
    }
    config["layer_types"] = longer;
  }
  return config;
}

inline std::vector<tensor::Batch> microbatches_of(int64_t vocab_size, int count) {
  std::vector<tensor::Batch> batches;
  for (int i = 0; i < count; ++i) {
    tensor::Batch batch;
    batch.input_ids =
        at::remainder((at::arange(20) + 3 * i).pow(2) * 7 + 3, vocab_size).view({2, 10});
    batch.labels = at::remainder(batch.input_ids * 5 + 1, vocab_size);
    batch.labels.select(1, i % 10).fill_(-100);
    batches.push_back(std::move(batch));
  }
  return batches;
}

/// What a rank's engines hold of the gradients, by the Hugging Face names of whole tensors.
inline std::map<std::string, at::Tensor> gradients_of(const Engine& engine) {
  std::map<std::string, at::Tensor> gradients;
  for (const tensor::FlatShard& shard : engine.gradients()) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      gradients[segment.fqn] = shard.view(segment).clone();
    }
  }
  return gradients;
}

/// Gives a stage its memory, over a group.
using StageEngine =
    std::function<std::unique_ptr<Engine>(models::CausalLM& model, const comm::ProcessGroup&)>;

inline StageEngine sharded_stage(const ShardingOptions& options = {}, bool keeps = false) {
  return [options, keeps](models::CausalLM& model, const comm::ProcessGroup& group) {
    auto engine =
        std::make_unique<ShardedEngine>(model, model.key_map(), ShardingGroups::of(group), options);
    if (keeps) engine->keep_between_micro_batches();
    return engine;
  };
}

inline std::unique_ptr<Engine> replicated_stage(models::CausalLM& model,
                                                const comm::ProcessGroup& group) {
  return std::make_unique<DataParallel>(model, model.parallel_plan(), model.key_map(), group,
                                        DataParallelOptions{});
}

/// A stage of a model; without a word on its engine replicas of one, or sharded over a group.
class StagedModel final : public PipelineStage {
 public:
  StagedModel(const Json& config, const std::vector<std::string>& modules,
              const comm::ProcessGroup& group, const StageEngine& make_engine = {})
      : model_(models::build_causal_lm(config, at::kFloat)) {
    model_->keep_stage(modules);
    model_->train();
    const StageEngine usual = group.size() > 1 ? sharded_stage() : StageEngine(replicated_stage);
    engine_ = (make_engine ? make_engine : usual)(*model_, group);
    fill_by_name(*engine_);
    engine_->parameters_changed();
    engine_->zero_gradients();
  }

  at::Tensor run(const tensor::Batch& batch, int, const at::Tensor& input) override {
    return model_->run_stage(batch, input);
  }
  at::Tensor loss(const tensor::Batch& batch, int, const at::Tensor& hidden) override {
    return model_->loss_of_hidden(batch, hidden, 1.0, -100);
  }
  std::vector<int64_t> hidden_sizes(const tensor::Batch& batch) const override {
    return model_->hidden_sizes(batch);
  }
  Engine& engine() override { return *engine_; }
  models::CausalLM& model() { return *model_; }

 private:
  std::shared_ptr<models::CausalLM> model_;
  std::unique_ptr<Engine> engine_;
};

/// Layers of the models that tests cut into stages.
inline constexpr int kNumLayers = 4;

/// A schedule and the ranks it runs on.
struct PipelineCase {
  ScheduleKind kind;
  int pp = 2;
  int dp = 1;
  int microbatches = 4;
};

/// A rank's stages, their executor and what it did.
struct RankPipeline {
  PipelineSchedule schedule;
  std::vector<std::unique_ptr<StagedModel>> stages;
  std::optional<PipelineExecutor> executor;

  RankPipeline(const PipelineCase& what, const DeviceMesh& mesh, const Json& config,
               const StageEngine& make_engine = {}) {
    const int per_rank = is_multi_stage(what.kind) ? 2 : 1;
    schedule = make_schedule(what.kind, {what.pp, per_rank, what.microbatches});
    const auto modules = split_into_stages(
        models::build_causal_lm(config, at::kFloat)->parallel_plan(), schedule.shape.num_stages());
    std::vector<PipelineStage*> own;
    for (const int stage : schedule.stages_of(mesh.group("pp").rank())) {
      stages.push_back(std::make_unique<StagedModel>(config, modules[static_cast<size_t>(stage)],
                                                     mesh.group("dp_shard_cp"), make_engine));
      own.push_back(stages.back().get());
    }
    executor.emplace(mesh.group("pp"), schedule, own, PipelineOptions{});
  }
};

/// The whole model's gradients and loss after these micro-batches.
inline std::pair<double, std::map<std::string, at::Tensor>> whole_model(
    const Json& config, const std::vector<tensor::Batch>& batches) {
  const auto model = models::build_causal_lm(config, at::kFloat);
  model->train();
  DataParallel engine(*model, model->parallel_plan(), model->key_map(), comm::ProcessGroup::solo(),
                      {});
  fill_by_name(engine);
  engine.zero_gradients();
  double loss = 0;
  for (const tensor::Batch& batch : batches) {
    const at::Tensor part = model->loss(batch, 1.0, -100);
    loss += part.item<double>();
    part.backward();
  }
  return {loss, gradients_of(engine)};
}

}  // namespace automodel::distributed
