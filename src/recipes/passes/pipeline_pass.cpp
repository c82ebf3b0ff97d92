#include "recipes/passes/pipeline_pass.h"

#include <algorithm>

#include "core/error.h"
#include "distributed/context/context_parallel.h"
#include "recipes/build/build_model.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

using distributed::PipelineStage;

/// Makes a model part a stage of the executor.
class ModelStage final : public PipelineStage {
 public:
  ModelStage(models::CausalLM& model, distributed::Engine& engine, int64_t ignore_index,
             std::function<void(int)> on_loss)
      : model_(model), engine_(engine), ignore_index_(ignore_index), on_loss_(std::move(on_loss)) {}

  /// `first` keys the dropout of the batch's first micro-batch; the others count on from it.
  void set_dropout(const models::DropoutContext& first) { dropout_ = first; }

  at::Tensor run(const tensor::Batch& batch, int microbatch, const at::Tensor& input) override {
    models::DropoutContext dropout = dropout_;
    dropout.micro_batch += microbatch;
    model_.set_dropout_context(dropout);
    return model_.run_stage(batch, input);
  }

  at::Tensor loss(const tensor::Batch& batch, int microbatch, const at::Tensor& hidden) override {
    if (on_loss_) on_loss_(microbatch);
    return model_.loss_of_hidden(batch, hidden, 1.0, ignore_index_);
  }

  std::vector<int64_t> hidden_sizes(const tensor::Batch& batch) const override {
    return model_.hidden_sizes(batch);
  }

  distributed::Engine& engine() override { return engine_; }

 private:
  models::CausalLM& model_;
  distributed::Engine& engine_;
  int64_t ignore_index_;
  std::function<void(int)> on_loss_;
  models::DropoutContext dropout_;
};

struct PassOptions {
  distributed::ContextParallelSharder sharder;
  int64_t microbatch_size = 1;
  uint64_t seed = 0;
  bool divides_by_microbatches = false;
  at::Device device = at::kCPU;
  PipelineListener listener;
};

class PipelinePass final : public training::BatchPass {
 public:
  PipelinePass(distributed::PipelineEngine& engine, std::vector<std::unique_ptr<ModelStage>> stages,
               distributed::PipelineExecutor executor, const PassOptions& options)
      : engine_(engine),
        stages_(std::move(stages)),
        executor_(std::move(executor)),
        options_(options) {}

  double train(const tensor::Batch& batch, double divisor,
               const training::BatchPlace& place) override {
    const auto microbatches = cut(batch);
    const int64_t usual = executor_.schedule().shape.num_microbatches;
    for (const auto& stage : stages_) {
      stage->set_dropout({options_.seed, place.step, place.micro_batch * usual});
    }
    if (options_.listener.on_batch) {
      options_.listener.on_batch(gradient_divisor(divisor),
                                 static_cast<int64_t>(microbatches.size()));
    }
    return executor_.train(microbatches, place.is_last) / divisor;
  }

  void finish(double divisor) override {
    training::divide_gradients(engine_, gradient_divisor(divisor));
  }

  double evaluate(const tensor::Batch& batch, int64_t) override {
    return executor_.evaluate(cut(batch));
  }

  double known_everywhere(double loss) override { return executor_.from_last_stage(loss); }

 private:
  double gradient_divisor(double divisor) const {
    return options_.divides_by_microbatches ? divisor * executor_.schedule().shape.num_microbatches
                                            : divisor;
  }

  std::vector<tensor::Batch> cut(const tensor::Batch& on_cpu) const {
    const tensor::Batch batch = options_.sharder.shard(on_cpu);
    std::vector<tensor::Batch> microbatches;
    const int64_t size = options_.microbatch_size;
    for (int64_t first = 0; first < batch.num_sequences(); first += size) {
      const int64_t count = std::min(size, batch.num_sequences() - first);
      microbatches.push_back(batch.sequences(first, count).to(options_.device));
    }
    if (options_.listener.on_cut) options_.listener.on_cut(on_cpu, microbatches);
    return microbatches;
  }

  distributed::PipelineEngine& engine_;
  std::vector<std::unique_ptr<ModelStage>> stages_;
  distributed::PipelineExecutor executor_;
  PassOptions options_;
};

/// dtype of hidden states between stages: the recipe's, else the output dtype of sharded stages.
at::ScalarType dtype_between_stages(const Recipe& recipe, const BuiltPipeline& built,
                                    at::ScalarType stored) {
  const auto parsed = [&](const std::optional<std::string>& name) {
    return name ? tensor::parse_dtype(*name).value_or(stored) : stored;
  };
  if (recipe.distributed.pipeline->dtype) return parsed(recipe.distributed.pipeline->dtype);
  if (built.engine->group().size() == 1) return stored;
  const auto policy = distributed::mixed_precision_policy(recipe.distributed);
  if (!policy) return stored;
  return parsed(policy->output_dtype ? policy->output_dtype : policy->param_dtype);
}

}  // namespace

BuiltPipeline build_pipeline(const Recipe& recipe, const PipelineRequest& request,
                             at::ScalarType dtype, const distributed::DeviceMesh& mesh,
                             const EnginePlace& place) {
  BuiltPipeline built;
  std::vector<std::unique_ptr<distributed::Engine>> engines;
  const comm::ProcessGroup& pp = mesh.group("pp");
  int64_t num_repeated = 0;
  for (const int stage : request.schedule.stages_of(pp.rank())) {
    built.parts.push_back(build_model(recipe, dtype));
    built.parts.back()->keep_stage(request.stages[static_cast<size_t>(stage)]);
    engines.push_back(build_engine(recipe, *built.parts.back(), mesh, place));
    const bool has_first_stages =
        stage > 0 && !built.parts.back()->parallel_plan().embedding.empty();
    const models::ModelDims dims = built.parts.back()->dims();
    if (has_first_stages) num_repeated += dims.vocab_size * dims.hidden_size;
  }
  built.engine =
      std::make_unique<distributed::PipelineEngine>(std::move(engines), pp, num_repeated);
  return built;
}

std::unique_ptr<training::BatchPass> make_pipeline_pass(
    const Recipe& recipe, const PipelineRequest& request, const BuiltPipeline& built,
    const distributed::DeviceMesh& mesh, const EnginePlace& place, PipelineListener listener) {
  std::vector<std::unique_ptr<ModelStage>> stages;
  std::vector<PipelineStage*> seen;
  for (size_t i = 0; i < built.parts.size(); ++i) {
    stages.push_back(std::make_unique<ModelStage>(*built.parts[i], built.engine->stage(i),
                                                  recipe.loss.ignore_index, listener.on_loss));
    seen.push_back(stages.back().get());
  }
  const at::ScalarType stored = built.parts[0]->parameters()[0].scalar_type();
  distributed::PipelineExecutor executor(
      mesh.group("pp"), request.schedule, std::move(seen),
      {dtype_between_stages(recipe, built, stored), place.device, place.trace});
  const distributed::PipelineConfig& config = *recipe.distributed.pipeline;
  return std::make_unique<PipelinePass>(
      *built.engine, std::move(stages), std::move(executor),
      PassOptions{distributed::ContextParallelSharder(mesh.group("cp"), recipe.loss.ignore_index),
                  config.pp_microbatch_size, static_cast<uint64_t>(recipe.seed),
                  config.scale_grads_in_schedule, place.device, std::move(listener)});
}

}  // namespace automodel::recipes
