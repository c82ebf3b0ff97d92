#include "recipes/run/session_step.h"

#include "core/error.h"
#include "distributed/context/context_parallel.h"
#include "models/block_denoiser.h"
#include "nn/classifier_head.h"
#include "recipes/passes/block_diffusion_pass.h"
#include "recipes/passes/classification_pass.h"
#include "recipes/passes/correcting_diffusion.h"
#include "recipes/passes/diffusion_pass.h"
#include "recipes/passes/distillation_pass.h"
#include "recipes/passes/introspective_diffusion.h"
#include "recipes/passes/masked_diffusion.h"
#include "recipes/passes/retrieval_pass.h"
#include "training/gradient_histogram.h"

namespace automodel::recipes {

namespace {

std::unique_ptr<training::BatchPass> build_block_diffusion_pass(const Recipe& recipe,
                                                                const PassParts& parts) {
  auto* const model = dynamic_cast<models::BlockDenoiser*>(&parts.model.model());
  AM_CHECK(model != nullptr, parts.model.model().architecture(), " denoises no blocks");
  BlockDiffusionPassOptions options = block_diffusion_options(recipe, *model);
  options.grad_acc_steps = parts.grad_acc_steps;
  options.data_ranks = parts.mesh.group("dp");
  options.device = parts.place.device;
  return std::make_unique<BlockDiffusionPass>(*model, parts.model.engine(), std::move(options));
}

std::unique_ptr<DiffusionObjective> build_objective(const Recipe& recipe, models::CausalLM& model) {
  const DllmSection& dllm = recipe.dllm.value();
  if (dllm.mode == "scdd") {
    return make_correcting_diffusion(model, {.seed = recipe.seed,
                                             .eps = dllm.eps,
                                             .mask_token_id = dllm.mask_token_id.value(),
                                             .vocab_size = dllm.vocab_size.value(),
                                             .num_timesteps = dllm.num_timesteps,
                                             .uniform_ratio = dllm.uniform_ratio,
                                             .schedule_shape = dllm.schedule_shape,
                                             .schedule_peak = dllm.schedule_peak,
                                             .ignore_index = recipe.loss.ignore_index});
  }
  auto* const denoiser = dynamic_cast<models::MaskedDenoiser*>(&model);
  AM_CHECK(denoiser != nullptr, model.architecture(), " denoises no tokens");
  if (dllm.mode == "idlm") {
    model.set_attention_core(make_paired_attention_core(dllm.block_length));
    return make_introspective_diffusion(*denoiser,
                                        {.mask_token_id = dllm.mask_token_id.value(),
                                         .clean_loss_weight = dllm.clean_loss_weight,
                                         .balances_clean_loss = dllm.auto_balance_clean_loss,
                                         .ignore_index = recipe.loss.ignore_index});
  }
  AM_CHECK(dllm.mode == "mdlm", dllm.mode);
  return make_masked_diffusion(*denoiser, {.seed = recipe.seed,
                                           .eps = dllm.eps,
                                           .mask_token_id = dllm.mask_token_id.value(),
                                           .ignore_index = recipe.loss.ignore_index});
}

std::unique_ptr<training::BatchPass> build_diffusion_pass(const Recipe& recipe,
                                                          const PassParts& parts) {
  DiffusionPassOptions options;
  options.seed = recipe.seed;
  options.grad_acc_steps = parts.grad_acc_steps;
  options.data_ranks = parts.mesh.group("dp");
  options.device = parts.place.device;
  models::CausalLM& model = parts.model.model();
  return std::make_unique<DiffusionPass>(model, parts.model.engine(),
                                         build_objective(recipe, model), std::move(options));
}

/// The student's head in place of the model's; null where nobody teaches.
std::shared_ptr<nn::StudentLossHead> give_student_head(const Recipe& recipe,
                                                       const PassParts& parts) {
  if (parts.teacher == nullptr) return nullptr;
  models::CausalLM& last = *parts.model.parts.back();
  auto head = make_student_head(*recipe.distillation, last.loss_head());
  last.set_loss_head(head);
  return head;
}

/// Puts a head that counts right classes in the model's place; null of a language model.
std::shared_ptr<nn::ClassifierLossHead> give_classifier_head(const Recipe& recipe,
                                                             const PassParts& parts) {
  if (!recipe.model.classifies) return nullptr;
  auto head = std::make_shared<nn::ClassifierLossHead>(nn::make_local_loss_head());
  parts.model.parts.back()->set_loss_head(head);
  return head;
}

/// Puts a head that compares embeddings in the model's place; null of other models.
std::shared_ptr<nn::RetrievalLossHead> give_retrieval_head(const Recipe& recipe,
                                                           const PassParts& parts) {
  if (!recipe.model.makes_embeddings) return nullptr;
  nn::RetrievalOptions options;
  options.normalizes = recipe.model.normalizes_embeddings;
  options.temperature = recipe.temperature;
  const BiEncoderSection& keys = recipe.model.encoder;
  if (keys.do_distributed_inbatch_negative) {
    options.shared =
        shared_passages(parts.mesh.group("dp"), !keys.detach_distributed_inbatch_negatives);
  }
  auto head = std::make_shared<nn::RetrievalLossHead>(std::move(options));
  parts.model.parts.back()->set_loss_head(head);
  return head;
}

std::unique_ptr<training::BatchPass> build_next_token_pass(const Recipe& recipe,
                                                           const PassParts& parts) {
  const int64_t ignore_index = recipe.loss.ignore_index;
  const distributed::ContextParallelSharder sharder(parts.mesh.group("cp"), ignore_index);
  models::CausalLM& model = parts.model.model();
  const auto head = give_student_head(recipe, parts);
  const auto classifier = give_classifier_head(recipe, parts);
  const auto retrieval = give_retrieval_head(recipe, parts);
  const auto loss = [&model, device = parts.place.device, seed = static_cast<uint64_t>(recipe.seed),
                     ignore_index, sharder, head,
                     teacher = parts.teacher](const tensor::Batch& on_cpu, double divisor,
                                              int64_t step, int64_t micro_batch) {
    tensor::Batch part = sharder.shard(on_cpu);
    // A teacher's head takes all tokens of a device.
    if (head == nullptr && !device.is_cpu()) {
      part.scored = models::scored_tokens(part.labels.reshape({-1}), ignore_index);
    }
    const std::vector<tensor::Batch> batch = {part.to(device)};
    model.set_dropout_context({seed, step, micro_batch});
    const auto student = [&] { return model.loss(batch[0], divisor, ignore_index); };
    if (head == nullptr) return student();
    return teacher->teach(*head, {on_cpu, batch, ignore_index}, student);
  };
  auto pass = training::make_plain_pass(parts.model.engine(), loss);
  if (classifier != nullptr) {
    return make_classification_pass(std::move(pass), classifier, parts.model.engine().group());
  }
  if (retrieval != nullptr) {
    return make_retrieval_pass(std::move(pass), retrieval,
                               recipe.step_scheduler.loss_average_window_steps,
                               parts.model.engine().group());
  }
  if (head == nullptr) return pass;
  return make_distillation_pass(std::move(pass), head, *recipe.distillation,
                                {parts.model.engine().group()});
}

std::unique_ptr<training::BatchPass> build_pipeline_pass(const Recipe& recipe,
                                                         const PassParts& parts) {
  PipelineListener listener{
      .on_batch = [&balance = parts.balance](double divisor, int64_t num_batches) {
        balance.begin_batch(divisor, num_batches);
      }};
  const auto head = give_student_head(recipe, parts);
  const auto classifier = give_classifier_head(recipe, parts);
  if (head != nullptr) {
    const auto heads = std::make_shared<std::vector<kernels::TeacherHead>>();
    listener.on_cut = [heads, teacher = parts.teacher, ignore_index = recipe.loss.ignore_index](
                          const tensor::Batch& whole, const std::vector<tensor::Batch>& cut) {
      heads->clear();  // before the next ones are made
      *heads = teacher->look({whole, cut, ignore_index});
    };
    listener.on_loss = [heads, head](int micro_batch) {
      head->follow(std::move(heads->at(static_cast<size_t>(micro_batch))));
    };
  }
  auto pass = make_pipeline_pass(recipe, *parts.model.pipeline, *parts.model.stages, parts.mesh,
                                 parts.place, std::move(listener));
  if (classifier != nullptr) {
    return make_classification_pass(std::move(pass), classifier, parts.model.engine().group());
  }
  if (head == nullptr) return pass;
  return make_distillation_pass(std::move(pass), head, *recipe.distillation,
                                {parts.model.engine().group(), /*are_plain_sums=*/true});
}

}  // namespace

std::unique_ptr<training::BatchPass> build_pass(const Recipe& recipe, const PassParts& parts) {
  if (parts.model.stages) return build_pipeline_pass(recipe, parts);
  if (recipe.dllm) {
    return recipe.dllm->is_block_diffusion() ? build_block_diffusion_pass(recipe, parts)
                                             : build_diffusion_pass(recipe, parts);
  }
  return build_next_token_pass(recipe, parts);
}

optim::LrSchedule build_schedule(const Recipe& recipe, int64_t max_steps) {
  const double lr = recipe.optimizer.lr;
  const double weight_decay = recipe.optimizer.weight_decay;
  if (!recipe.lr_scheduler) return optim::LrSchedule::constant(lr, weight_decay);
  return {*recipe.lr_scheduler, lr, weight_decay, max_steps};
}

namespace {

/// Why no step of a run is recorded; "" where they may be.
std::string unrecorded_reason(const Recipe& recipe, const SessionModel& model,
                              const RunContext& context) {
  if (context.group.size() > 1) return "only a run of one rank records steps";
  if (recipe.dllm) return "a diffusion model's steps differ in what they mask";
  if (recipe.distillation) return "a teacher computes between a student's steps";
  if (recipe.model.classifies) return "right classes are counted beside each step";
  if (recipe.model.makes_embeddings) return "steps differ in the lengths of their texts";
  if (!model.model().parallel_plan().expert_modules.empty()) {
    return "which experts compute what differs from step to step";
  }
  if (context.cuda == nullptr) return "this run has no CUDA device";
  return "";
}

}  // namespace

training::TrainStepOptions step_options(const Recipe& recipe, const SessionModel& model,
                                        const distributed::DeviceMesh& mesh,
                                        const RunContext& context) {
  training::TrainStepOptions options;
  options.max_grad_norm = recipe.clip.max_norm.value_or(1.0);
  if (recipe.clip.on_spike != OnSpike::kContinue) {
    options.spike_multiple = recipe.clip.spike_multiple;
  }
  if (recipe.benchmark) {
    options.max_grad_norm.reset();
    options.spike_multiple.reset();
    if (context.cuda != nullptr) {
      options.synchronize = [cuda = context.cuda] { cuda->synchronize(); };
    }
  }
  const auto every = recipe.tensorboard ? recipe.tensorboard->histograms_every_steps : std::nullopt;
  if (every) {
    options.look_at_gradients = [every = *every, group = context.group,
                                 trackers = context.trackers](const distributed::Engine& engine,
                                                              int64_t step) {
      if (step % every != 0) return;
      trackers->gradients(step, training::gradient_histograms(engine, group));
    };
  }
  if (recipe.model.records_steps) {
    const std::string reason = unrecorded_reason(recipe, model, context);
    if (reason.empty()) {
      options.graph =
          std::make_shared<training::StepGraph>(context.cuda->make_graph(), context.device);
    } else {
      context.reporter->warning(cat("model.backend.cuda_graph has no effect: ", reason));
    }
  }
  options.reporter = context.reporter;
  options.ignore_index = recipe.loss.ignore_index;
  options.stops_on_non_finite = recipe.stops_on_non_finite;
  options.ranks_per_replica = mesh.size("tp");
  options.data_ranks = mesh.group("dp");
  if (model.pipeline) {
    // A stage's ranks are consecutive.
    const int64_t ranks_per_stage = context.group.size() / mesh.size("pp");
    options.first_loss_rank = model.pipeline->schedule.rank_of_stage.back() * ranks_per_stage;
  }
  return options;
}

}  // namespace automodel::recipes
