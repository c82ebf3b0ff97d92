#include "recipes/run/train_session.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "checkpoint/hf_folder.h"
#include "core/clock.h"
#include "core/error.h"
#include "datasets/tokenizer_encoder.h"
#include "distributed/context/context_parallel.h"
#include "models/catalog.h"
#include "models/flops.h"
#include "recipes/build/base_weights.h"
#include "recipes/build/build_engine.h"
#include "recipes/build/tp_request.h"
#include "recipes/read/read_recipe.h"
#include "recipes/run/pipeline_pass.h"
#include "recipes/run/run_log.h"
#include "tensor/memory.h"
#include "tensor/random.h"

namespace automodel::recipes {

comm::SlowWorkOptions slow_work_options(const Recipe& recipe, Reporter& reporter) {
  return {.stall_seconds = recipe.checkpoint.consolidation_timeout_minutes * 60,
          .reporter = &reporter};
}

TrainSession::TrainSession(const Recipe& recipe, const RunContext& context)
    : recipe_(recipe),
      context_(context),
      dp_group_(context.group),
      tp_group_(comm::ProcessGroup::solo("tp")),
      cp_group_(comm::ProcessGroup::solo("cp")) {
  signals_.emplace(recipe.step_scheduler.preemption_signal);
  build_groups();
  build_model();
  build_data();
  build_updates();
  resume();
  describe();
}

TrainSession::~TrainSession() = default;

void TrainSession::build_model() {
  const ModelPlan& plan = recipe_.model;
  if (!plan.hf_config.is_object()) {
    throw InputError(cat("model '", plan.source,
                         "' is not on this machine: give a folder, or put "
                         "it into the Hugging Face cache",
                         plan.looked_for));
  }
  at::ScalarType dtype = plan.dtype.value_or(at::kFloat);
  if (!plan.dtype) dtype = checkpoint_dtype(plan.folder).value_or(at::kFloat);
  EnginePlace place{context_.device, context_.trace, context_.reporter};
  if (mesh_->size("pp") > 1) {
    build_stages(dtype, place);
    build_optimizer(*engine_);  // of all stages together
  } else {
    parts_ = {models::build_causal_lm(plan.hf_config, dtype)};
    model_ = parts_[0];
    place.optimizer = [this](distributed::Engine& engine) { build_optimizer(engine); };
    engine_ = build_engine(recipe_, *parts_[0], *mesh_, place);
  }
  for (const auto& part : parts_) part->train();
  const bool splits_sequence = tp_request(recipe_).sequence_parallel;
  balance_.emplace(parts_,
                   BalanceRanks{mesh_->group("dp_cp"), cp_group_,
                                splits_sequence ? tp_group_ : comm::ProcessGroup::solo("tp"),
                                mesh_->group("pp")});
  if (plan.has_fake_balanced_gate) balance_->use_fake_balanced_gates();
}

void TrainSession::build_stages(at::ScalarType dtype, const EnginePlace& place) {
  const auto whole = models::build_causal_lm(recipe_.model.hf_config, dtype);
  pipeline_ = pipeline_request(recipe_, whole->parallel_plan());
  BuiltPipeline built = build_pipeline(recipe_, *pipeline_, dtype, *mesh_, place);
  pass_ = make_pipeline_pass(recipe_, *pipeline_, built, *mesh_, place,
                             [this](double divisor, int64_t num_micro_batches) {
                               balance_->begin_batch(divisor, num_micro_batches);
                             });
  parts_ = std::move(built.parts);
  model_ = parts_[0];
  engine_ = std::move(built.engine);
}

void TrainSession::build_groups() {
  const int ep = static_cast<int>(recipe_.distributed.sizes.ep_size.value_or(1));
  mesh_.emplace(*context_.world, mesh::Mesh(mesh_of(recipe_, context_.group.size())), ep);
  dp_group_ = mesh_->group("dp");
  tp_group_ = mesh_->group("tp");
  cp_group_ = mesh_->group("cp");
}

void TrainSession::initialise_weights(const std::vector<std::string>& prefixes) {
  std::map<std::string, tensor::InitRule> rules;
  for (const auto& part : parts_) {
    for (const models::ParameterInit& init : part->initial_values()) {
      rules.emplace(init.parameter, init.rule);
    }
  }
  std::map<std::string_view, const tensor::ParameterPart*> parts;
  for (const tensor::ParameterPart& part : model_->key_map()) parts.emplace(part.name, &part);
  for (const auto& shard : engine_->parameters()) {
    for (const auto& segment : shard.segments) {
      if (!checkpoint::has_prefix(segment.fqn, prefixes)) continue;
      const auto found = parts.find(segment.fqn);
      AM_CHECK(found != parts.end(), segment.fqn);
      const auto rule = rules.find(found->second->parameter);
      AM_CHECK(rule != rules.end(), found->second->parameter);
      const tensor::RandomKey key(static_cast<uint64_t>(recipe_.seed), segment.fqn);
      tensor::fill_initial_values(shard.view(segment), segment.spec, rule->second, key);
    }
  }
}

void TrainSession::load_weights() {
  if (recipe_.model.is_from_config || recipe_.model.section.load_base_model == false) {
    initialise_weights({""});
    return;
  }
  const std::vector<std::string> drawn_anew =
      recipe_.checkpoint.skip_task_head_prefixes_for_base_model.value_or(
          std::vector<std::string>());
  slow_work().run("loading the weights", [&] {
    load_base_weights(recipe_.model.folder, *model_, engine_->parameters(), drawn_anew,
                      *context_.reporter, &slow_work().progress());
  });
  if (!drawn_anew.empty()) initialise_weights(drawn_anew);
}

std::unique_ptr<datasets::BatchStream> TrainSession::build_stream(const DatasetSection& section,
                                                                  bool is_training) {
  DataContext data;
  if (section.plan->needs_tokenizer()) {
    const std::string folder = tokenizer_folder(recipe_, section);
    if (folder.empty())
      throw InputError(cat(section.key, ": the tokenizer is not on this machine"));
    encoders_.push_back(datasets::load_text_encoder(folder));
    data.encoder = encoders_.back().get();
  }
  data.loader = is_training ? recipe_.dataloader : recipe_.validation_dataloader;
  if (!is_training && !data.loader.shuffle) data.loader.shuffle = false;
  data.context.num_replicas = dp_group_.size();
  data.context.rank = dp_group_.rank();
  data.context.seed = recipe_.seed;
  data.context.local_batch_size = recipe_.step_scheduler.local_batch_size;
  data.context.vocab_size = model_->dims().vocab_size;
  data.context.stacks = is_training ? recipe_.stacks : recipe_.validation_stacks;
  data.context.collater = is_training ? recipe_.collater : recipe_.validation_collater;
  if (recipe_.dllm) data.context.window_collater = window_collater_of(recipe_, *data.encoder);
  data.context.reporter = context_.reporter;
  return section.plan->build(data);
}

void TrainSession::build_data() {
  stream_ = build_stream(recipe_.dataset, true);
  for (const DatasetSection& section : recipe_.validation_datasets) {
    validation_sets_.push_back({section.name, build_stream(section, false)});
  }
  scheduler_.emplace(recipe_.step_scheduler, dp_group_.size(), stream_->size());
}

void TrainSession::build_optimizer(distributed::Engine& engine) {
  std::vector<std::string> frozen;
  for (const auto& part : parts_) {
    for (const auto& item : part->named_parameters()) {
      if (!item.value().requires_grad()) frozen.push_back(item.key());
    }
  }
  std::vector<std::string> trained_names;  // of all stages
  for (const tensor::ParameterPart& part : model_->key_map()) {
    const bool is_frozen = std::find(frozen.begin(), frozen.end(), part.parameter) != frozen.end();
    if (!is_frozen) trained_names.push_back(part.name);
  }
  optim::check_overrides(recipe_.optimizer.param_group_overrides, trained_names);
  optimizer_ = recipe_.optimizer.make(engine.trained(), engine.gradients());
}

void TrainSession::build_updates() {
  const double lr = recipe_.optimizer.lr;
  const double weight_decay = recipe_.optimizer.weight_decay;
  const auto schedule =
      recipe_.lr_scheduler
          ? optim::LrSchedule(*recipe_.lr_scheduler, lr, weight_decay, scheduler_->max_steps())
          : optim::LrSchedule::constant(lr, weight_decay);
  training::TrainStepOptions options;
  options.max_grad_norm = recipe_.clip.max_norm.value_or(1.0);
  options.ignore_index = recipe_.loss.ignore_index;
  options.stops_on_non_finite = recipe_.stops_on_non_finite;
  options.ranks_per_replica = tp_group_.size();
  options.data_ranks = dp_group_;
  if (pipeline_) {
    // Ranks of a stage are neighbours.
    const int64_t ranks_per_stage = context_.group.size() / mesh_->size("pp");
    options.first_loss_rank = pipeline_->schedule.rank_of_stage.back() * ranks_per_stage;
  }
  build_train_step(schedule, options);
}

void TrainSession::build_train_step(const optim::LrSchedule& schedule,
                                    const training::TrainStepOptions& options) {
  if (pipeline_) {
    train_step_.emplace(*engine_, *optimizer_, schedule, std::move(pass_), options);
    return;
  }
  if (recipe_.dllm) {
    auto& model = dynamic_cast<models::diffusion_gemma::DiffusionGemmaModel&>(*model_);
    BlockDiffusionPassOptions diffusion = block_diffusion_options(recipe_, model);
    diffusion.grad_acc_steps = scheduler_->grad_accumulation_steps();
    diffusion.data_ranks = dp_group_;
    diffusion.device = context_.device;
    auto pass = std::make_unique<BlockDiffusionPass>(model, *engine_, std::move(diffusion));
    diffusion_ = pass.get();
    train_step_.emplace(*engine_, *optimizer_, schedule, std::move(pass), options);
    return;
  }
  const distributed::ContextParallelSharder sharder(cp_group_, recipe_.loss.ignore_index);
  const auto loss = [this, sharder](const tensor::Batch& on_cpu, double divisor, int64_t step,
                                    int64_t micro_batch) {
    const tensor::Batch batch = sharder.shard(on_cpu).to(context_.device);
    model_->set_dropout_context({static_cast<uint64_t>(recipe_.seed), step, micro_batch});
    return model_->loss(batch, divisor, recipe_.loss.ignore_index);
  };
  train_step_.emplace(*engine_, *optimizer_, schedule, loss, options);
}

void TrainSession::resume() {
  checkpoint_.emplace(recipe_, context_.group, slow_work(), *context_.reporter,
                      context_.resolved_recipe);
  const SessionState state{*engine_, *optimizer_, *train_step_, *scheduler_, *stream_, *model_};
  const bool is_resumed = checkpoint_->restore(state);
  if (!is_resumed) load_weights();
  slow_work().run("opening the logs", [&] {
    log_.emplace(recipe_, context_.group, *context_.reporter, is_resumed ? scheduler_->step() : 0,
                 is_resumed);
  });
}

comm::SlowWork& TrainSession::slow_work() {
  return context_.world->slow_work(slow_work_options(recipe_, *context_.reporter));
}

void TrainSession::describe() {
  Reporter& log = *context_.reporter;
  const models::ModelDims dims = model_->dims();
  log.info(cat("model: ", model_->architecture(), ", ", dims.num_layers, " layers, hidden ",
               dims.hidden_size, ", vocabulary ", dims.vocab_size, ", ", engine_->num_parameters(),
               " parameters (", engine_->num_trained_parameters(), " trained)"));
  if (pipeline_) {
    const distributed::PipelineSchedule& schedule = pipeline_->schedule;
    log.info(cat("pipeline: ", distributed::schedule_name(schedule.kind), ", ",
                 schedule.shape.num_stages(), " stages on ", schedule.shape.num_ranks, " ranks, ",
                 schedule.shape.num_microbatches, " micro-batches"));
  }
  log.info(cat("distributed: ", distributed::describe(recipe_.distributed)));
  log.info(cat("optimizer: ", optimizer_->describe()));
  const int per_replica = tp_group_.size() * cp_group_.size();
  const std::string split = per_replica == 1 ? "" : cat(" (", per_replica, " a replica)");
  log.info(cat("ranks: ", context_.group.size(), split, ", ", scheduler_->grad_accumulation_steps(),
               " micro-batches of ", recipe_.step_scheduler.local_batch_size,
               " sequences a step and ", split.empty() ? "rank" : "replica"));
  log.info(cat("steps: ", scheduler_->max_steps(), " in at most ", scheduler_->num_epochs(),
               " epochs of ", *scheduler_->epoch_length(), "; checkpoints in ",
               recipe_.checkpoint.enabled ? recipe_.checkpoint.checkpoint_dir : "(off)"));
}

TrainSession::Group TrainSession::next_group() {
  Group group;
  const int64_t wanted = scheduler_->grad_accumulation_steps();
  while (static_cast<int64_t>(group.batches.size()) < wanted) {
    auto batch = stream_->next();
    if (!batch) break;
    leave_out_unlabelled(*batch);
    group.batches.push_back(std::move(*batch));
  }
  group.position = stream_->state();
  return group;
}

void TrainSession::leave_out_unlabelled(tensor::Batch& batch) const {
  constexpr int64_t kOfDatasets = -100;
  const int64_t of_loss = recipe_.loss.ignore_index;
  if (of_loss == kOfDatasets || recipe_.dllm) return;
  batch.labels = batch.labels.masked_fill(batch.labels == kOfDatasets, of_loss);
}

int TrainSession::agreed_signal() {
  return static_cast<int>(context_.group.agree_max(signals_->received()));
}

ExitCode TrainSession::run() {
  const tensor::CudaRuntime* cuda = context_.cuda;
  const int index = context_.device.index();
  const std::string device = cuda == nullptr ? "cpu" : cuda->device_name(index);
  std::optional<double> peak = recipe_.mfu.peak_tflops
                                   ? recipe_.mfu.peak_tflops
                                   : models::peak_tflops(recipe_.mfu.device.value_or(device));
  if (recipe_.dllm) peak.reset();  // operations are counted for one pass of a decoder
  meter_.emplace(context_.group.size(), peak, [cuda, index] {
    return cuda == nullptr ? tensor::peak_resident_bytes() : cuda->peak_allocated_bytes(index);
  });
  count_flops_ = models::training_flops(model_->hf_config());
  progress_.emplace(scheduler_->step(), scheduler_->max_steps());
  begin_seconds_ = monotonic_seconds();
  bool is_stopped = false;
  while (!scheduler_->is_done() && !is_stopped) {
    stream_->set_epoch(scheduler_->epoch());
    Group group = next_group();
    while (!group.batches.empty() && !is_stopped) {
      // The next group is taken first: only then is it known whether this one ends the epoch.
      Group next = next_group();
      is_stopped = run_step(group, next.batches.empty());
      group = std::move(next);
    }
    if (!is_stopped) scheduler_->advance_epoch();
  }
  context_.reporter->progress("");
  if (stopped_by_ != 0) {
    context_.reporter->info(cat("stopped by ", training::signal_name(stopped_by_),
                                " after saving; start again to continue"));
    return ExitCode::kPreempted;
  }
  return ExitCode::kDone;
}

bool TrainSession::run_step(const Group& group, bool ends_epoch) {
  const int64_t step = scheduler_->step();
  const double begin = monotonic_seconds();
  balance_->begin_step(static_cast<int64_t>(group.batches.size()));
  if (diffusion_ != nullptr) diffusion_->begin_step(group.batches, step);
  training::StepResult result = train_step_->run(group.batches, step);
  if (diffusion_ != nullptr) result.counts.num_tokens = diffusion_->num_tokens();
  balance_->end_step(*engine_);
  trace(cat("step ", step), "step", begin);
  Json record = meter_->record(result, step, scheduler_->epoch(), flops_of(group));
  balance_->describe(recipe_.moe_metrics, step, record);
  if (diffusion_ != nullptr) diffusion_->describe(record);
  log_->train(record);
  context_.reporter->progress(
      progress_->line(step + 1, monotonic_seconds() - begin_seconds_, result.loss));

  const bool is_last = scheduler_->is_last_step(ends_epoch);
  // The last step is ended as without a signal: no later run would validate and export for it.
  if (!is_last) stopped_by_ = agreed_signal();
  const bool is_preempted = stopped_by_ != 0;
  std::vector<std::pair<std::string, double>> validation;
  if (scheduler_->is_validation_step(ends_epoch, is_preempted)) validation = validate();
  if (recipe_.checkpoint.enabled && scheduler_->is_checkpoint_step(ends_epoch, is_preempted)) {
    const double save_begin = monotonic_seconds();
    const SessionState state{*engine_, *optimizer_, *train_step_, *scheduler_, *stream_, *model_};
    checkpoint_->save(state, {.position = group.position,
                              .train_loss = result.loss,
                              .validation_losses = validation,
                              .is_final = is_last});
    trace("save", "checkpoint", save_begin);
  }
  scheduler_->advance_step();
  meter_->restart();
  return is_last || is_preempted;
}

std::vector<std::pair<std::string, double>> TrainSession::validate() {
  std::vector<std::pair<std::string, double>> losses;
  if (validation_sets_.empty()) return losses;
  const double begin = monotonic_seconds();
  for (const auto& part : parts_) part->eval();
  for (ValidationSet& set : validation_sets_) {
    set.stream->rewind();
    const auto evaluation = train_step_->evaluate([&](tensor::Batch& batch) {
      auto next = set.stream->next();
      if (next) batch = std::move(*next);
      if (next) leave_out_unlabelled(batch);
      if (next && diffusion_ != nullptr) diffusion_->begin_validation(batch, scheduler_->step());
      return next.has_value();
    });
    losses.emplace_back(set.name, evaluation.loss);
    log_->validation(set.name, meter_->validation_record(evaluation, train_step_->lr(),
                                                         scheduler_->step(), scheduler_->epoch()));
  }
  for (const auto& part : parts_) part->train();
  trace("validation", "step", begin);
  return losses;
}

double TrainSession::flops_of(const Group& group) const {
  double flops = 0;
  for (const tensor::Batch& batch : group.batches) {
    flops += count_flops_(batch.num_sequences(), batch.sequence_length());
  }
  return flops * dp_group_.size();
}

void TrainSession::trace(const std::string& name, std::string_view category, double begin) {
  if (context_.trace == nullptr) return;
  context_.trace->record({name, category, begin, monotonic_seconds(), context_.group.rank()});
}

}  // namespace automodel::recipes
